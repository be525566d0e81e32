-- Events are read in the order of writing. A lane has one writer, which numbers its batches one
-- after the other; lanes are numbered in the order in which they begin, and one that is closed
-- is never written again. So a reader need not remember the servers that are gone.

-- The highest lane that was ever given: the row is locked until the lane that is being given
-- can be seen, so whoever sees a lane sees all before it.
create table event_lane (
    id bigint primary key check (id = 1),
    latest bigint not null
);

-- The lane that a server writes in; null when it was closed.
alter table server_batch add column lane bigint;

alter table event_batch add column lane bigint;
update event_batch b set lane = l.lane
    from (select server, row_number() over (order by min(at), server) as lane
          from event_batch group by server) l
    where l.server = b.server;
insert into event_lane (id, latest)
    select 1, max(lane) from event_batch having max(lane) is not null;
alter table event_batch alter column lane set not null;
alter table event_batch drop constraint event_batch_pkey;
alter table event_batch add primary key (lane, n, at);

-- Gives a server a lane, and closes those of servers that have not written for a minute: one
-- that does write again is given another.
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

-- Opens a batch: returns the store's time in milliseconds.
create or replace function outlast.open_batch(server_id uuid, batch bigint) returns bigint
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
