-- Live counts by class and state, of slots that have ended. Each server has rows of
-- its own, so that servers never wait for each other; only the sum is meaningful, and a single row
-- may be negative. A claimable job counts in the class it is claimed from, any other in its own.
create table tally (
    class bigint not null references class (id),
    server uuid not null,
    scheduled bigint not null,
    available bigint not null,
    pending bigint not null,
    active bigint not null,
    completed bigint not null,
    retryable bigint not null,
    cancelled bigint not null,
    discarded bigint not null,
    started bigint not null,
    exhausted bigint not null,
    abandoned bigint not null,
    primary key (class, server)
) with (
    fillfactor = 40, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- By how much the batches of a slot changed the live counts. The end of the slot adds it to tally.
create table tally_slot (
    server uuid not null,
    slot bigint not null,
    class bigint not null references class (id),
    scheduled bigint not null,
    available bigint not null,
    pending bigint not null,
    active bigint not null,
    completed bigint not null,
    retryable bigint not null,
    cancelled bigint not null,
    discarded bigint not null,
    started bigint not null,
    exhausted bigint not null,
    abandoned bigint not null,
    primary key (server, slot, class)
) with (
    fillfactor = 40, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- All that is counted; the sum of a class's rows is right. Slots are found by their whole key.
create view outlast.live_tally as
select class, scheduled, available, pending, active, completed, retryable, cancelled, discarded,
    started, exhausted, abandoned
from tally
union all
select s.class, s.scheduled, s.available, s.pending, s.active, s.completed, s.retryable,
    s.cancelled, s.discarded, s.started, s.exhausted, s.abandoned
from server_batch b
join tally_slot s on s.server = any(array[b.server]) and s.slot = any(array[b.slot]);

-- How many jobs wait in each queue, so that a bounded queue need not add up all of its classes.
-- Each server has rows of its own; only the sum is meaningful, and a single row may be negative.
create table depth (
    queue text not null,
    server uuid not null,
    n bigint not null,
    primary key (queue, server)
) with (
    fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- By how much the batches of a slot changed it, as tally_slot does for tally.
create table depth_slot (
    server uuid not null,
    slot bigint not null,
    queue text not null,
    n bigint not null,
    primary key (server, slot, queue)
) with (
    fillfactor = 40, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- All that is counted; the sum of a queue's rows is right.
create view outlast.live_depth as
select queue, n from depth
union all
select s.queue, s.n
from server_batch b
join depth_slot s on s.server = any(array[b.server]) and s.slot = any(array[b.slot]);

-- The same numbers, counted from the tables: the start of a tally, and what tests compare with.
create view outlast.tally_counted as
select
    class,
    coalesce(sum(n) filter (where what = 'scheduled'), 0)::bigint as scheduled,
    coalesce(sum(n) filter (where what = 'available'), 0)::bigint as available,
    coalesce(sum(n) filter (where what = 'pending'), 0)::bigint as pending,
    coalesce(sum(n) filter (where what = 'active'), 0)::bigint as active,
    coalesce(sum(n) filter (where what = 'completed'), 0)::bigint as completed,
    coalesce(sum(n) filter (where what = 'retryable'), 0)::bigint as retryable,
    coalesce(sum(n) filter (where what = 'cancelled'), 0)::bigint as cancelled,
    coalesce(sum(n) filter (where what = 'discarded'), 0)::bigint as discarded,
    coalesce(sum(n) filter (where what = 'started'), 0)::bigint as started,
    coalesce(sum(n) filter (where what = 'exhausted'), 0)::bigint as exhausted,
    coalesce(sum(n) filter (where what = 'abandoned'), 0)::bigint as abandoned
from (
    select class, 'available' as what, count(*) as n from ready group by class
    union all
    select j.class, 'active', count(*) from active a join job_row j on j.seq = a.seq
        where not a.cancelled group by j.class
    union all
    select j.class, 'started', count(*) from active a join job_row j on j.seq = a.seq
        where not a.cancelled and a.started is not null group by j.class
    union all
    select j.class, w.state, count(*) from waiting w join job_row j on j.seq = w.seq
        group by j.class, w.state
    union all
    select j.class, f.state, count(*) from finished f join job_row j on j.seq = f.seq
        group by j.class, f.state
    union all
    select j.class, case d.reason when 'exhausted' then 'exhausted' else 'abandoned' end, count(*)
        from dead_letter_row d join job_row j on j.seq = d.seq group by 1, 2
) counted
group by class;

-- Counts everything again, in rows of no server.
create function outlast.count_tally() returns void
language sql set search_path = outlast, pg_temp as $$
    delete from tally;
    delete from tally_slot;
    delete from depth;
    delete from depth_slot;
    insert into tally
        select class, '00000000-0000-0000-0000-000000000000', scheduled, available, pending, active,
            completed, retryable, cancelled, discarded, started, exhausted, abandoned
        from outlast.tally_counted;
    insert into depth
        select c.queue, '00000000-0000-0000-0000-000000000000',
            sum(t.scheduled + t.available + t.pending + t.retryable)
        from tally t join class c on c.id = t.class group by c.queue;
$$;

-- Ends a server's slot and returns its row. The caller has locked the server's row. This waits for
-- the batch under way.
create function outlast.end_slot(server_id uuid, slot_id bigint) returns batch_slot
language plpgsql as $$
declare
    ended batch_slot;
begin
    delete from batch_slot b where b.server = server_id and b.slot = slot_id returning * into ended;
    with gone as (
        delete from depth_slot s where s.server = server_id and s.slot = slot_id returning *)
    insert into depth as d (queue, server, n) select queue, server, n from gone order by queue
    on conflict (queue, server) do update set n = d.n + excluded.n;
    with gone as (
        delete from tally_slot s where s.server = server_id and s.slot = slot_id returning *)
    insert into tally as t (class, server, scheduled, available, pending, active, completed,
                            retryable, cancelled, discarded, started, exhausted, abandoned)
    select class, server, scheduled, available, pending, active, completed, retryable, cancelled,
        discarded, started, exhausted, abandoned
    from gone order by class
    on conflict (class, server) do update set
        scheduled = t.scheduled + excluded.scheduled,
        available = t.available + excluded.available,
        pending = t.pending + excluded.pending,
        active = t.active + excluded.active,
        completed = t.completed + excluded.completed,
        retryable = t.retryable + excluded.retryable,
        cancelled = t.cancelled + excluded.cancelled,
        discarded = t.discarded + excluded.discarded,
        started = t.started + excluded.started,
        exhausted = t.exhausted + excluded.exhausted,
        abandoned = t.abandoned + excluded.abandoned;
    return ended;
end $$;
