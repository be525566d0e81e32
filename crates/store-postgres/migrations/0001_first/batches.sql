-- The number of each server's latest batch. Every batch updates its server's row first, so the row
-- is locked until the batch has committed or rolled back. It shows whether a batch took effect,
-- and a batch that is sent twice is refused.

create table server_batch (
    server uuid primary key,
    n bigint not null,
    at bigint not null,
    lane bigint
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

-- Assigns a lane to a server, and closes the lanes of servers that have not written for a minute.
-- A server that writes again gets a new lane.
create function outlast.take_lane(server_id uuid) returns void
language plpgsql as $$
declare
    now constant bigint := (extract(epoch from clock_timestamp()) * 1000)::bigint;
    given bigint;
begin
    update server_batch set lane = null where server in (
        select b.server from server_batch b
        where b.lane is not null and b.at < now - 60000 and b.server <> server_id
        for update skip locked);
    insert into server_batch (server, n, at) values (server_id, -1, now) on conflict do nothing;
    perform 1 from server_batch b where b.server = server_id and b.lane is null for update;
    if found then
        insert into event_lane as e (id, latest) values (1, 1)
            on conflict (id) do update set latest = e.latest + 1
            returning latest into given;
        update server_batch set lane = given where server = server_id;
    end if;
end $$;

-- Opens a batch and returns the store's time in milliseconds.
create function outlast.open_batch(server_id uuid, batch bigint) returns bigint
language plpgsql as $$
begin
    update server_batch set n = batch, at = (extract(epoch from clock_timestamp()) * 1000)::bigint
    where server = server_id and n < batch and lane is not null;
    if not found then
        if exists (select 1 from server_batch b where b.server = server_id and b.n >= batch) then
            raise exception 'batch % was applied before', batch using errcode = 'OL004';
        end if;
        raise exception 'server % has no lane', server_id using errcode = 'OL005';
    end if;
    return (extract(epoch from clock_timestamp()) * 1000)::bigint;
end $$;
