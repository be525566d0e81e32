-- Bounded queues: servers must know which queues are bounded before they store jobs. See
-- docs/adr/020-bounded-queues.md.

-- Changes whenever a queue gets a bound. A server that remembers another number asks again. It
-- begins with the time, so that a row that was deleted and made again has another one.
alter table server_batch add column bounds bigint not null
    default (extract(epoch from clock_timestamp()) * 1000000)::bigint;

-- Assigns a lane to a server, and closes the lanes of servers that have not written for a minute.
-- A server that writes again gets a new lane. No queue gets a bound meanwhile: the lock is that of
-- settings.
create or replace function outlast.take_lane(server_id uuid) returns void
language plpgsql as $$
declare
    now constant bigint := (extract(epoch from clock_timestamp()) * 1000)::bigint;
    given bigint;
begin
    perform pg_advisory_xact_lock_shared(119200062993523);
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

-- Opens a batch and returns the store's time in milliseconds. A batch that stores jobs says which
-- number of bounds its server knows.
create function outlast.open_batch(server_id uuid, batch bigint, known bigint) returns bigint
language plpgsql as $$
begin
    update server_batch set n = batch, at = (extract(epoch from clock_timestamp()) * 1000)::bigint
    where server = server_id and n < batch and lane is not null
        and (known is null or bounds = known);
    if not found then
        if exists (select 1 from server_batch b where b.server = server_id and b.n >= batch) then
            raise exception 'batch % was applied before', batch using errcode = 'OL004';
        end if;
        if exists (select 1 from server_batch b where b.server = server_id and b.lane is not null)
        then
            raise exception 'queues were bounded' using errcode = 'OL001';
        end if;
        raise exception 'server % has no lane', server_id using errcode = 'OL005';
    end if;
    return (extract(epoch from clock_timestamp()) * 1000)::bigint;
end $$;
