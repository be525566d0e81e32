-- Live counts by class and state, changed by the batch that moves the jobs: nothing is counted
-- when somebody asks. A claimable job counts in the class that it is claimed from, any other
-- in its own.
create table tally (
    class integer primary key,
    scheduled integer not null,
    available integer not null,
    pending integer not null,
    active integer not null,
    completed integer not null,
    retryable integer not null,
    cancelled integer not null,
    discarded integer not null,
    started integer not null,
    exhausted integer not null,
    abandoned integer not null
);

-- The same, counted one by one: what a tally begins with, and is compared with.
create view tally_counted as
select
    class,
    coalesce(sum(n) filter (where what = 'scheduled'), 0) as scheduled,
    coalesce(sum(n) filter (where what = 'available'), 0) as available,
    coalesce(sum(n) filter (where what = 'pending'), 0) as pending,
    coalesce(sum(n) filter (where what = 'active'), 0) as active,
    coalesce(sum(n) filter (where what = 'completed'), 0) as completed,
    coalesce(sum(n) filter (where what = 'retryable'), 0) as retryable,
    coalesce(sum(n) filter (where what = 'cancelled'), 0) as cancelled,
    coalesce(sum(n) filter (where what = 'discarded'), 0) as discarded,
    coalesce(sum(n) filter (where what = 'started'), 0) as started,
    coalesce(sum(n) filter (where what = 'exhausted'), 0) as exhausted,
    coalesce(sum(n) filter (where what = 'abandoned'), 0) as abandoned
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
)
group by class;

insert into tally select * from tally_counted;

-- Who is watched each second, and who may be forgotten: not the many that went.
create index worker_live on worker (created_ms, id) where liveness < 2;
create index worker_gone on worker (updated_ms, id) where liveness >= 2;
