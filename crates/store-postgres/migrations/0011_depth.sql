-- How many jobs wait in each queue, so that a bounded queue need not add up all of its classes. See
-- docs/adr/020-bounded-queues.md.

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

create or replace function outlast.count_tally() returns void
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

insert into depth
    select c.queue, '00000000-0000-0000-0000-000000000000',
        sum(t.scheduled + t.available + t.pending + t.retryable)
    from outlast.live_tally t join class c on c.id = t.class group by c.queue;

create or replace function outlast.end_slot(server_id uuid, slot_id bigint) returns batch_slot
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
