-- Live counts by queue, and when its claimable jobs became so: the numbers of queues must not cost
-- more the more classes these have. See docs/adr/036-counts-by-queue.md.

-- The live counts of all classes of a queue together.
create table queue_tally (
    queue text primary key,
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
) without rowid;

-- How many jobs of a queue have been claimable since some time within a second. A row without jobs is
-- deleted, so the first one of a queue says how long its oldest job has waited.
create table ready_second (
    queue text not null,
    second integer not null,
    jobs integer not null,
    primary key (queue, second)
) without rowid;

-- The same numbers, counted from the tables: the start of these, and what tests compare with.
create view queue_tally_counted as
select c.queue as queue, sum(t.scheduled) as scheduled, sum(t.available) as available,
    sum(t.pending) as pending, sum(t.active) as active, sum(t.completed) as completed,
    sum(t.retryable) as retryable, sum(t.cancelled) as cancelled, sum(t.discarded) as discarded,
    sum(t.started) as started, sum(t.exhausted) as exhausted, sum(t.abandoned) as abandoned
from tally_counted t
join class c on c.id = t.class
group by c.queue;

create view ready_second_counted as
select c.queue as queue, r.since / 1000 as second, count(*) as jobs
from ready r
join class c on c.id = r.class
group by 1, 2;

-- From the live counts, which are right: to count the jobs again could take minutes.
insert into queue_tally
select c.queue, sum(t.scheduled), sum(t.available), sum(t.pending), sum(t.active), sum(t.completed),
    sum(t.retryable), sum(t.cancelled), sum(t.discarded), sum(t.started), sum(t.exhausted),
    sum(t.abandoned)
from tally t
join class c on c.id = t.class
group by c.queue;

insert into ready_second select * from ready_second_counted;
