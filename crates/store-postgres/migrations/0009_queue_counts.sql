-- Live counts by queue, and when its claimable jobs became so: the numbers of queues must not cost
-- more the more classes these have. A server of the build before keeps the counts of queues right, but
-- not those of seconds. Until it has stopped and they are counted again, the oldest job of a queue is
-- looked for in all classes. See docs/adr/036-counts-by-queue.md.

-- The live counts of all classes of a queue together, of slots that have ended. Each server has rows
-- of its own; only the sum is meaningful, and a single row may be negative.
create table queue_tally (
    queue text not null,
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
    primary key (queue, server)
) with (
    fillfactor = 40, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- How many jobs of a queue have been claimable since some time within a second. The second -1 counts
-- all of them: if these are not as many as the queue's claimable jobs, the rows are not to be
-- believed. Only sums over all servers are meaningful, as above.
create table ready_second (
    queue text not null,
    second bigint not null,
    server uuid not null,
    jobs bigint not null,
    primary key (queue, second, server)
) with (
    fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- By how much the batches of a slot changed it, as tally_slot does for tally.
create table ready_second_slot (
    server uuid not null,
    slot bigint not null,
    queue text not null,
    second bigint not null,
    jobs bigint not null,
    primary key (server, slot, queue, second)
) with (
    fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- All that is counted; the sum of a queue's rows is right. A slot changes a few thousand classes at
-- most, however many there are.
create view outlast.live_queue_tally as
select queue, scheduled, available, pending, active, completed, retryable, cancelled, discarded,
    started, exhausted, abandoned
from queue_tally
union all
select c.queue, s.scheduled, s.available, s.pending, s.active, s.completed, s.retryable,
    s.cancelled, s.discarded, s.started, s.exhausted, s.abandoned
from server_batch b
join tally_slot s on s.server = any(array[b.server]) and s.slot = any(array[b.slot])
cross join lateral (select c.queue from class c where c.id = s.class offset 0) c;

create view outlast.live_ready_second as
select queue, second, jobs from ready_second
union all
select s.queue, s.second, s.jobs
from server_batch b
join ready_second_slot s on s.server = any(array[b.server]) and s.slot = any(array[b.slot]);

-- The same numbers, counted from the tables: the start of these, and what tests compare with.
create view outlast.ready_second_counted as
select c.queue, r.since / 1000 as second, count(*) as jobs
from ready r
join class c on c.id = r.class
group by 1, 2;

-- What leaves tally_slot was counted, whoever deletes it: the end of a slot, or a prune of classes.
create function outlast.keep_queue_tally() returns trigger
language plpgsql set search_path = outlast, pg_temp as $$
begin
    insert into queue_tally as t (queue, server, scheduled, available, pending, active, completed,
                                  retryable, cancelled, discarded, started, exhausted, abandoned)
    select c.queue, g.server, sum(g.scheduled), sum(g.available), sum(g.pending), sum(g.active),
        sum(g.completed), sum(g.retryable), sum(g.cancelled), sum(g.discarded), sum(g.started),
        sum(g.exhausted), sum(g.abandoned)
    from gone g
    join class c on c.id = g.class
    group by c.queue, g.server order by c.queue, g.server
    on conflict (queue, server) do update set
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
    return null;
end $$;

create trigger keep_queue_tally after delete on tally_slot referencing old table as gone
    for each statement execute function outlast.keep_queue_tally();

-- Ends a server's slot and returns its row. The caller has locked the server's row. This waits for
-- the batch under way.
create or replace function outlast.end_slot(server_id uuid, slot_id bigint) returns batch_slot
language plpgsql as $$
declare
    ended batch_slot;
    empty_queues text[];
    empty_seconds bigint[];
begin
    delete from batch_slot b where b.server = server_id and b.slot = slot_id returning * into ended;
    with gone as (
        delete from depth_slot s where s.server = server_id and s.slot = slot_id returning *)
    insert into depth as d (queue, server, n) select queue, server, n from gone order by queue
    on conflict (queue, server) do update set n = d.n + excluded.n;
    with gone as (
        delete from ready_second_slot s where s.server = server_id and s.slot = slot_id
        returning *),
    kept as (
        insert into ready_second as r (queue, second, server, jobs)
        select queue, second, server, jobs from gone where jobs <> 0 order by queue, second
        on conflict (queue, second, server) do update set jobs = r.jobs + excluded.jobs
        returning r.queue, r.second, r.jobs)
    select array_agg(queue), array_agg(second) into empty_queues, empty_seconds
    from kept where jobs = 0;
    -- Seconds pass: rows of those that no job waits from any more would stay.
    if empty_queues is not null then
        delete from ready_second r using unnest(empty_queues, empty_seconds) e(queue, second)
        where r.queue = e.queue and r.second = e.second and r.server = server_id;
    end if;
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

-- Counts the claimable jobs by second again, in rows of no server. It waits for the batches under
-- way, and holds up the next ones for as long as it takes to read all claimable jobs.
create function outlast.count_ready_seconds() returns void
language plpgsql set search_path = outlast, pg_temp as $$
begin
    perform 1 from server_batch order by server for update;
    perform 1 from server_batch b
    join batch_slot s on s.server = b.server and s.slot = b.slot order by b.server for update of s;
    delete from ready_second;
    delete from ready_second_slot;
    insert into ready_second
    select c.queue, v.second, '00000000-0000-0000-0000-000000000000', sum(c.jobs)
    from ready_second_counted c
    cross join lateral (values (c.second), (-1::bigint)) v(second)
    group by 1, 2;
end $$;

-- Counts everything again, in rows of no server.
create or replace function outlast.count_tally() returns void
language sql set search_path = outlast, pg_temp as $$
    delete from tally;
    delete from tally_slot;
    delete from queue_tally;
    delete from depth;
    delete from depth_slot;
    insert into tally
        select class, '00000000-0000-0000-0000-000000000000', scheduled, available, pending, active,
            completed, retryable, cancelled, discarded, started, exhausted, abandoned
        from outlast.tally_counted;
    insert into queue_tally
        select c.queue, t.server, sum(t.scheduled), sum(t.available), sum(t.pending), sum(t.active),
            sum(t.completed), sum(t.retryable), sum(t.cancelled), sum(t.discarded), sum(t.started),
            sum(t.exhausted), sum(t.abandoned)
        from tally t join class c on c.id = t.class group by c.queue, t.server;
    insert into depth
        select c.queue, '00000000-0000-0000-0000-000000000000',
            sum(t.scheduled + t.available + t.pending + t.retryable)
        from tally t join class c on c.id = t.class group by c.queue;
    select outlast.count_ready_seconds();
$$;

-- From the live counts, which are right: to count all jobs again could take minutes. No slot ends
-- meanwhile, as the trigger has locked its counts.
insert into queue_tally
select c.queue, '00000000-0000-0000-0000-000000000000', sum(t.scheduled), sum(t.available),
    sum(t.pending), sum(t.active), sum(t.completed), sum(t.retryable), sum(t.cancelled),
    sum(t.discarded), sum(t.started), sum(t.exhausted), sum(t.abandoned)
from tally t join class c on c.id = t.class group by c.queue;

insert into ready_second
select c.queue, v.second, '00000000-0000-0000-0000-000000000000', sum(c.jobs)
from ready_second_counted c
cross join lateral (values (c.second), (-1::bigint)) v(second)
group by 1, 2;
