//! The statements of claims by limits: lanes, their gates, and their first jobs. Each begins at the
//! floors of its classes: see [`crate::floors`].

/// The version of the limits, if no other transaction is changing them.
pub(in crate::writer) const VERSION_SHARED: &str =
    "select n from limit_version where pg_try_advisory_xact_lock_shared($1)";

/// Those of the classes whose queues are not paused.
pub(in crate::writer) const NOT_PAUSED: &str =
    "select c.id from class c where c.id = any($1::bigint[])
     and not exists (select 1 from queue q where q.name = c.queue and q.paused)";

/// The lanes of the first jobs of classes, in the order of these, with the keys of the first of
/// each.
pub(in crate::writer) const FRONT: &str = "select c.id, f.lane,
         (select j.keys from job_row j where j.seq = f.best[2])
     from unnest($1::bigint[], $5::bigint[], $6::bigint[]) c(id, rank, seq)
     cross join lateral (
         select h.lane, min(array[h.rank, h.seq]) as best
         from (
             select r.lane, r.rank, r.seq from ready r
             where r.class = c.id and (r.rank, r.seq) >= (c.rank, c.seq)
                 and (r.expires is null or r.expires > $2)
             order by r.class, r.rank, r.seq limit $3) h
         where h.lane <> 0
         group by h.lane order by min(array[h.rank, h.seq]) limit $4) f";

/// Lanes of ranges, each found by one step in the index, with the keys of their first jobs. The
/// numbers of jobs that were taken are compared in the index: their rows are not read.
pub(in crate::writer) const LANES: &str =
    "with recursive l(nth, class, lane, upto, rank, seq, low, n) as (
         select s.nth, s.class, (select r.lane from ready r
                                 where r.class = s.class and r.lane <> 0
                                     and r.lane > s.after and r.lane <= s.upto and r.seq >= s.low
                                 order by r.class, r.lane limit 1),
             s.upto, s.rank, s.seq, s.low, 1
         from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $6::bigint[],
                     $7::bigint[], $8::bigint[])
             s(nth, class, after, upto, rank, seq, low)
         union all
         select l.nth, l.class, (select r.lane from ready r
                                 where r.class = l.class and r.lane <> 0
                                     and r.lane > l.lane and r.lane <= l.upto and r.seq >= l.low
                                 order by r.class, r.lane limit 1),
             l.upto, l.rank, l.seq, l.low, l.n + 1
         from l where l.lane is not null and l.n < $5)
     select l.nth, l.lane, h.keys
     from l
     cross join lateral (
         select j.keys from ready r join job_row j on j.seq = any(array[r.seq])
         where r.class = l.class and r.lane = l.lane and r.lane <> 0
             and (r.rank, r.seq) >= (l.rank, l.seq)
         order by r.class, r.lane, r.rank, r.seq limit 1) h
     where l.lane is not null order by l.nth, l.n";

/// Makes gates that no job has passed before. An insert would wait for another server that is making
/// the same one, so each is locked before; several gates share a lock, so that there are not too
/// many of them.
pub(in crate::writer) const MAKE_GATES: &str = "with missing as materialized (
         select k.id, k.limit_name, k.value
         from unnest($1::bigint[], $2::text[], $3::text[]) k(id, limit_name, value)
         where not exists (select 1 from gate g where g.id = any(array[k.id]))
         order by k.id)
     insert into gate (id, limit_name, value, used_until)
     select m.id, m.limit_name, m.value, 0 from missing m
     where pg_try_advisory_xact_lock($4::integer, (m.id % 1024)::integer)
     on conflict do nothing";

/// Locks those gates that look open: of which attempts hold fewer than `most`, and that a rate has
/// not used further ahead than one more start allows.
pub(in crate::writer) const LOCK_GATES: &str = "select g.id, g.used_until
     from unnest($1::bigint[], $2::bigint[], $3::bigint[]) k(id, most, ahead)
     cross join lateral (
         select g.id, g.used_until from gate g
         where g.id = k.id
             and (k.most is null or k.most > coalesce((
                 select sum(h.n) from gate_held h where h.gate = g.id), 0))
             and (k.ahead is null or g.used_until - k.ahead <= greatest($4::bigint,
                 case when not $5::boolean
                 then (extract(epoch from clock_timestamp()) * 1000000)::bigint end))
         for update skip locked) g";

/// What gates count, and the time: after they were locked, so that starts through a gate are in
/// order, whichever server makes them.
pub(in crate::writer) const COUNT_GATES: &str = "select k.id, coalesce((
         select sum(h.n) from gate_held h where h.gate = k.id), 0)::bigint,
         (select g.used_until from gate g where g.id = k.id),
         (extract(epoch from clock_timestamp()) * 1000)::bigint
     from unnest($1::bigint[]) k(id)";

/// The first jobs of each lane, and of each class whose jobs all pass the same gates, but for those
/// that are avoided.
pub(in crate::writer) const HEADS: &str = "select w.nth, h.rank, h.seq
     from unnest($1::bigint[], $2::bigint[], $3::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
         w(nth, class, lane, most, rank, seq)
     cross join lateral (
         select r.rank, r.seq from ready r
         where w.lane is null and r.class = w.class and r.seq <> all($8::bigint[])
             and (r.rank, r.seq) >= (w.rank, w.seq) and (r.expires is null or r.expires > $4)
         order by r.class, r.rank, r.seq limit w.most) h
     where w.lane is null
     union all
     select w.nth, h.rank, h.seq
     from unnest($1::bigint[], $2::bigint[], $3::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
         w(nth, class, lane, most, rank, seq)
     cross join lateral (
         select r.rank, r.seq from ready r
         where r.class = w.class and r.lane = w.lane and r.lane <> 0 and r.seq <> all($8::bigint[])
             and (r.rank, r.seq) >= (w.rank, w.seq) and (r.expires is null or r.expires > $4)
         order by r.class, r.lane, r.rank, r.seq limit w.most) h
     where w.lane is not null";

pub(in crate::writer) const KEEP_STARTS: &str = "update gate g set used_until = k.used_until
     from unnest($1::bigint[], $2::bigint[]) k(id, used_until) where g.id = any(array[k.id])";

/// The first jobs of classes whose queues are not paused, but for those that are avoided.
pub(in crate::writer) const FIRST: &str = "select w.class, r.lane, r.rank, r.seq
     from unnest($1::bigint[], $2::bigint[], $4::bigint[], $5::bigint[]) w(class, n, rank, seq)
     cross join lateral (
         select r.lane, r.rank, r.seq from ready r
         where r.class = (select c.id from class c where c.id = w.class
                 and not exists (select 1 from queue q where q.name = c.queue and q.paused))
             and (r.rank, r.seq) >= (w.rank, w.seq)
             and (r.expires is null or r.expires > $3) and r.seq <> all($6::bigint[])
         order by r.class, r.rank, r.seq limit w.n) r";

/// The first jobs of lanes that gave some lately.
pub(in crate::writer) const RECENT: &str = "select w.class, w.lane, r.rank, r.seq
     from unnest($1::bigint[], $2::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
         w(class, lane, n, rank, seq)
     cross join lateral (
         select r.rank, r.seq from ready r
         where r.class = (select c.id from class c where c.id = w.class
                 and not exists (select 1 from queue q where q.name = c.queue and q.paused))
             and r.lane = w.lane and r.lane <> 0
             and (r.rank, r.seq) >= (w.rank, w.seq) and (r.expires is null or r.expires > $3)
             and r.seq <> all($7::bigint[])
         order by r.class, r.lane, r.rank, r.seq limit w.n) r";

/// The keys of the first job of each lane.
pub(in crate::writer) const KEYS: &str = "select w.class, w.lane, j.keys
     from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) w(class, lane, rank, seq)
     cross join lateral (
         select r.seq from ready r
         where r.class = w.class and r.lane = w.lane and r.lane <> 0
             and (r.rank, r.seq) >= (w.rank, w.seq)
         order by r.class, r.lane, r.rank, r.seq limit 1) r
     join job_row j on j.seq = any(array[r.seq])";
