-- How far each server's writing has come: one row a server, changed by every batch first of
-- all and so locked until the batch is decided. Whether a batch took effect is read here, and
-- one that is sent twice is refused.

create table server_batch (
    server uuid primary key,
    n bigint not null,
    at bigint not null
) with (fillfactor = 10, autovacuum_vacuum_threshold = 1000);

-- Opens a batch: returns the store's time in milliseconds.
create function outlast.open_batch(server_id uuid, batch bigint) returns bigint
language plpgsql as $$
begin
    update server_batch set n = batch, at = (extract(epoch from clock_timestamp()) * 1000)::bigint
    where server = server_id and n < batch;
    if not found then
        insert into server_batch (server, n, at)
        values (server_id, batch, (extract(epoch from clock_timestamp()) * 1000)::bigint)
        on conflict do nothing;
        if not found then
            raise exception 'batch % was applied before', batch using errcode = 'OL004';
        end if;
    end if;
    return (extract(epoch from clock_timestamp()) * 1000)::bigint;
end $$;
