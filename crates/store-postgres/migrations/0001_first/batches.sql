-- Batches of a server are numbered. The number shows whether a batch took effect, and a batch that is
-- sent twice is refused. While a transaction holds an old snapshot, no version of a row can be
-- removed, and a look by its key passes them all; so the rows that every batch changes get another
-- key now and then. See docs/adr/023-slots.md.

-- A server's number in the order of events, and its latest batch as of the last time that it began
-- or ended a slot. The row is locked to do that.
create table server_batch (
    server uuid primary key,
    n bigint not null,
    at bigint not null,
    lane bigint,
    slot bigint,
    -- Changes whenever a queue gets a bound: servers must know which queues are bounded before they
    -- store jobs. A server that remembers another number asks again. It begins with the time, so
    -- that a row that was deleted and made again has another one. See docs/adr/020-bounded-queues.md.
    bounds bigint not null default (extract(epoch from clock_timestamp()) * 1000000)::bigint
) with (fillfactor = 10, autovacuum_vacuum_threshold = 1000);

-- A slot is a run of batches of a server, named by the number of its first batch. Every batch
-- updates the row of its slot first, so the row is locked until the batch has committed or rolled
-- back. A server has at most one slot; lane and bounds are copies from server_batch.
create table batch_slot (
    server uuid not null,
    slot bigint not null,
    -- The number of the latest batch.
    n bigint not null,
    at bigint not null,
    lane bigint not null,
    bounds bigint not null,
    primary key (server, slot)
) with (fillfactor = 10, autovacuum_vacuum_threshold = 1000);

-- Events are read in the order in which they were written. A lane has one writer, which numbers
-- its batches. Lanes are numbered in the order in which they begin, and a closed lane is never
-- written again, so a reader need not remember servers that are gone.

-- The highest lane so far. The row is locked until the new lane is visible, so a reader that sees
-- a lane sees all lanes before it.
create table event_lane (
    id bigint primary key check (id = 1),
    latest bigint not null
);

-- Begins a slot with a batch, and ends the one before it.
create function outlast.begin_slot(server_id uuid, batch bigint, known bigint, slot_id bigint)
returns void
language plpgsql as $$
declare
    now constant bigint := (extract(epoch from clock_timestamp()) * 1000)::bigint;
    mine server_batch;
    latest bigint;
begin
    select * into mine from server_batch b where b.server = server_id for update;
    select n into latest from batch_slot b where b.server = server_id and b.slot = mine.slot;
    if greatest(mine.n, latest) >= batch then
        raise exception 'batch % was applied before', batch using errcode = 'OL004';
    elsif mine.lane is null then
        raise exception 'server % has no lane', server_id using errcode = 'OL005';
    elsif mine.bounds <> known then
        raise exception 'queues were bounded' using errcode = 'OL001';
    elsif slot_id <> batch then
        raise exception 'slot % of server % has ended', slot_id, server_id using errcode = 'OL005';
    end if;
    if mine.slot is not null then
        perform outlast.end_slot(server_id, mine.slot);
    end if;
    insert into batch_slot (server, slot, n, at, lane, bounds)
    values (server_id, batch, batch, now, mine.lane, mine.bounds);
    update server_batch set n = batch, at = now, slot = batch where server = server_id;
end $$;

-- Opens a batch and returns the store's time in milliseconds. The batch begins a slot if that has
-- its number. A batch that stores jobs says which number of bounds its server knows.
create function outlast.open_batch(server_id uuid, batch bigint, known bigint, slot_id bigint)
returns bigint
language plpgsql as $$
begin
    update batch_slot set n = batch, at = (extract(epoch from clock_timestamp()) * 1000)::bigint
    where server = server_id and slot = slot_id and n < batch
        and (known is null or bounds = known);
    if not found then
        perform outlast.begin_slot(server_id, batch, known, slot_id);
    end if;
    return (extract(epoch from clock_timestamp()) * 1000)::bigint;
end $$;

-- Returns the number of a server's latest batch. This waits for the batch under way.
create function outlast.latest_batch(server_id uuid) returns bigint
language plpgsql as $$
declare
    mine server_batch;
    latest bigint;
begin
    select * into mine from server_batch b where b.server = server_id for update;
    select n into latest from batch_slot b
    where b.server = server_id and b.slot = mine.slot for update;
    return greatest(mine.n, latest);
end $$;

-- Takes the number of a batch unless it is taken; returns whether it was. Nothing of the batch takes
-- effect later.
create function outlast.fence_off(server_id uuid, batch bigint) returns boolean
language plpgsql as $$
begin
    if outlast.latest_batch(server_id) >= batch then
        return true;
    end if;
    update batch_slot s set n = batch from server_batch b
    where b.server = server_id and s.server = b.server and s.slot = b.slot;
    update server_batch set n = batch where server = server_id;
    return false;
end $$;

-- Closes the lanes of other servers that have not written since. A batch under way keeps its
-- server's open.
create function outlast.close_lanes(server_id uuid, since bigint) returns void
language plpgsql as $$
declare
    other record;
    ended batch_slot;
begin
    for other in
        select b.server, b.slot from server_batch b
        where b.lane is not null and b.at < since and b.server <> server_id
        for update skip locked
    loop
        if other.slot is not null then
            perform 1 from batch_slot b
            where b.server = other.server and b.slot = other.slot and b.at < since
            for update skip locked;
            continue when not found;
            ended := outlast.end_slot(other.server, other.slot);
        end if;
        update server_batch set lane = null, slot = null, n = greatest(n, ended.n),
            at = greatest(at, ended.at)
        where server = other.server;
        ended := null;
    end loop;
end $$;

-- Assigns a lane to a server, and closes the lanes of servers that have not written for a minute.
-- A server that writes again gets a new lane. No queue gets a bound meanwhile: the lock is that of
-- settings.
create function outlast.take_lane(server_id uuid) returns void
language plpgsql as $$
declare
    now constant bigint := (extract(epoch from clock_timestamp()) * 1000)::bigint;
    given bigint;
begin
    perform pg_advisory_xact_lock_shared(119200062993523);
    perform outlast.close_lanes(server_id, now - 60000);
    insert into server_batch (server, n, at) values (server_id, -1, now) on conflict do nothing;
    perform 1 from server_batch b where b.server = server_id and b.lane is null for update;
    if found then
        insert into event_lane as e (id, latest) values (1, 1)
            on conflict (id) do update set latest = e.latest + 1
            returning latest into given;
        update server_batch set lane = given where server = server_id;
    end if;
end $$;
