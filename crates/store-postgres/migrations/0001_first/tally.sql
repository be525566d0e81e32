-- Live counts by class and state, updated by the batch that moves the jobs. Each server has rows of
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
    insert into tally
        select class, '00000000-0000-0000-0000-000000000000', scheduled, available, pending, active, completed,
            retryable, cancelled, discarded, started, exhausted, abandoned
        from outlast.tally_counted;
$$;
