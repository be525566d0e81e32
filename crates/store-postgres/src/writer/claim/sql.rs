//! The statements that take claimable jobs. Each begins at the floors of its classes: see
//! [`crate::floors`].

use outlast_core::limits::CLAIM_BYTES_MAX;

/// Whether a claimable job is in a range.
macro_rules! in_range {
    ($of:literal) => {
        concat!(
            "(r.rank, r.seq) >= (",
            $of,
            ".rank, ",
            $of,
            ".seq) and (r.rank, r.seq) < (",
            $of,
            ".to_rank, ",
            $of,
            ".to_seq)"
        )
    };
}

/// How long a job is: its texts and its checkpoint.
macro_rules! length {
    () => {
        "(octet_length(j.args) + octet_length(j.meta) + octet_length(j.extra)
            + coalesce(c.length, 0))::bigint"
    };
}

/// Whether the jobs before one come to less than a claim may take, by the lengths of their texts
/// and checkpoints, which are known without reading them.
macro_rules! fits {
    () => {
        concat!("sum(", length!(), ") over w - ", length!(), " < 4194304")
    };
}

const _: () = assert!(CLAIM_BYTES_MAX == 4_194_304, "as the statements say");

/// Takes the best rows. The rows of `ready` are found by their place in the table once they
/// are locked: no plan can mistake how many there are. Those that do not fit have no payload.
macro_rules! take {
    ($best:expr) => {
        concat!(
            "with ",
            $best,
            ",
             gone as (
                 delete from ready r where r.ctid = any(array(select place from best))
                 returning r.*)
             select j.seq, j.id, j.class, j.priority, j.rules, j.timeout_ms, j.visibility_ms,
                 j.strand_ms, j.origin, j.created, j.scheduled_for, case when ",
            fits!(),
            " then j.args else '' end, case when ",
            fits!(),
            " then j.meta else '' end, case when ",
            fits!(),
            " then j.extra else '' end, j.keys, g.class, g.rank, g.epoch, g.life, g.failures,
                 g.losses, g.interruptions, g.since,
                 case when g.epoch > 0 and ",
            fits!(),
            " then (select k.bytes from checkpoint k where k.seq = g.seq) end,
                 (select n from limit_version), g.lane, ",
            length!(),
            ", ",
            fits!(),
            " from gone g join job_row j on j.seq = any(array[g.seq])
             cross join lateral (
                 select case when g.epoch > 0 then (
                     select octet_length(k.bytes) from checkpoint k where k.seq = g.seq) end
                     as length offset 0) c
             window w as (order by g.rank, g.seq rows unbounded preceding)
             order by g.rank, g.seq"
        )
    };
}

/// Those of the named rows that no other session has locked, and the first so many of classes and
/// lanes, but for those that are avoided; of a lane, those that have its keys.
pub(in crate::writer) const TAKE_CHOSEN: &str = take!(
    "named as materialized (
         select r.place
         from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) w(class, rank, seq, keys)
         cross join lateral (
             select r.ctid as place from ready r
             where r.class = w.class and r.rank = w.rank and r.seq = w.seq
                 and (r.expires is null or r.expires > $5)
                 and (w.keys is null or exists (
                     select 1 from job_row j where j.seq = r.seq and j.keys = w.keys))
             for update skip locked) r),
     of_class as materialized (
         select r.place
         from unnest($6::bigint[], $7::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
             w(class, lane, n, rank, seq)
         cross join lateral (
             select r.ctid as place from ready r
             where w.lane is null and r.class = w.class
                 and (r.rank, r.seq) >= (w.rank, w.seq) and (r.expires is null or r.expires > $5)
                 and r.seq <> all($12::bigint[])
             order by r.class, r.rank, r.seq limit w.n
             for update skip locked) r
         where w.lane is null),
     of_lane as materialized (
         select r.place
         from unnest($6::bigint[], $7::bigint[], $8::text[], $9::bigint[], $10::bigint[],
                     $11::bigint[]) w(class, lane, keys, n, rank, seq)
         cross join lateral (
             select r.ctid as place from ready r
             where r.class = w.class and r.lane = w.lane and r.lane <> 0
                 and (r.rank, r.seq) >= (w.rank, w.seq)
                 and (r.expires is null or r.expires > $5) and r.seq <> all($12::bigint[])
                 and exists (select 1 from job_row j where j.seq = r.seq and j.keys = w.keys)
             order by r.class, r.lane, r.rank, r.seq limit w.n
             for update skip locked) r
         where w.lane is not null),
     best as (
         select place from named union all select place from of_class
         union all select place from of_lane)"
);

/// How many rows of a class are looked at: others may have locked some.
macro_rules! heads_max {
    () => {
        "$3::bigint + 100"
    };
}

/// The best of several classes: their heads are merged first, then locked one by one in that
/// order until there are enough. So no more rows are locked than are taken, and what others
/// have locked is passed over. `$but` leaves some out.
macro_rules! best_of {
    ($classes:literal, $name:literal, $but:literal) => {
        concat!(
            "heads as materialized (
                 select h.class, h.rank, h.seq, k.to_rank, k.to_seq
                 from (",
            $classes,
            ") k(class, rank, seq, to_rank, to_seq)
                 cross join lateral (
                     select r.class, r.rank, r.seq from ready r
                     where r.class = k.class and ",
            in_range!("k"),
            "
                         and (r.expires is null or r.expires > $2)",
            $but,
            "
                     order by r.class, r.rank, r.seq limit ",
            heads_max!(),
            ") h
                 order by h.rank, h.seq),
             ",
            $name,
            " as materialized (
                 select r.place
                 from heads h
                 cross join lateral (
                     select r.ctid as place from ready r
                     where r.class = h.class and r.rank = h.rank and r.seq = h.seq
                     for update skip locked) r
                 limit $3)"
        )
    };
}

/// The best of one class, but for those that are avoided: its rows are locked in order.
pub(super) const TAKE_OF_CLASS: &str = take!(concat!(
    "best as materialized (
         select r.place
         from unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
             w(rank, seq, to_rank, to_seq)
         cross join lateral (
             select r.ctid as place from ready r
             where r.class = (select c.id from class c where c.id = $1::bigint
                     and not exists (select 1 from queue q where q.name = c.queue and q.paused))
                 and ",
    in_range!("w"),
    "
                 and (r.expires is null or r.expires > $2) and r.seq <> all($8::bigint[])
             order by r.class, r.rank, r.seq limit $3
             for update skip locked) r
         limit $3)"
));

/// The same of several classes.
pub(super) const TAKE_OF_CLASSES: &str = take!(best_of!(
    "select c.id, w.rank, w.seq, w.to_rank, w.to_seq
         from unnest($1::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
             w(class, rank, seq, to_rank, to_seq)
         join class c on c.id = any(array[w.class])
         where not exists (select 1 from queue q where q.name = c.queue and q.paused)",
    "best",
    " and r.seq <> all($8::bigint[])"
));

/// The best of a queue, but for those that are avoided. Others may have locked or taken all the heads of a class: if these were not
/// enough, those behind them are taken, class by class.
/// Classes without ranges are read from their start.
pub(super) const TAKE_OF_QUEUE: &str = take!(concat!(
    best_of!(
        "select c.id, coalesce(w.rank, -9223372036854775808),
             coalesce(w.seq, -9223372036854775808), coalesce(w.to_rank, 9223372036854775807),
             coalesce(w.to_seq, 9223372036854775807)
         from class c
         left join unnest($9::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
             w(class, rank, seq, to_rank, to_seq) on w.class = c.id
         where c.queue = $1 and c.plain
             and ($8::text is null or c.tenant = $8)
             and not exists (select 1 from queue q where q.name = c.queue
                 and (q.paused or q.labels_required))",
        "front",
        " and r.seq <> all($10::bigint[])"
    ),
    ",
     cut_off as materialized (
         select class, to_rank, to_seq, max(array[rank, seq]) as last from heads
         where (select count(*) from front) < $3
         group by class, to_rank, to_seq having count(*) = ",
    heads_max!(),
    "),
     behind as materialized (
         select r.place
         from cut_off k
         cross join lateral (
             select r.ctid as place from ready r
             where r.class = k.class and (r.rank, r.seq) > (k.last[1], k.last[2])
                 and (r.rank, r.seq) < (k.to_rank, k.to_seq)
                 and (r.expires is null or r.expires > $2) and r.seq <> all($10::bigint[])
             order by r.class, r.rank, r.seq limit $3
             for update skip locked) r
         limit $3 - (select count(*) from front)),
     best as (select place from front union all select place from behind)"
));

/// The classes that a fetch from a queue takes from.
pub(super) const PLAIN_OF_QUEUE: &str = "select c.id from class c
         where c.queue = $1 and c.plain
         and ($2::text is null or c.tenant = $2)
         and not exists (select 1 from queue q where q.name = c.queue
             and q.labels_required)
     order by c.id";

/// Those of the classes that have claimable jobs, after some were taken: others have them locked, or
/// the claim avoids them.
pub(super) const LEFT_OVER: &str = concat!(
    "select distinct c.id
     from unnest($1::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
         w(class, rank, seq, to_rank, to_seq)
     join class c on c.id = any(array[w.class])
     where not exists (select 1 from queue q where q.name = c.queue and q.paused)
         and coalesce((select true from ready r
             where r.class = w.class and ",
    in_range!("w"),
    " and (r.expires is null or r.expires > $2)
             order by r.class, r.rank, r.seq limit 1), false)
     order by c.id"
);
