-- Orders to all workers whose labels match, for those that start later. See
-- docs/adr/029-standing-orders.md.
create table worker_order (
    selector text primary key,
    -- quiet or drain.
    kind text not null,
    set_by text not null,
    set_at integer not null
) without rowid;

-- Why a worker says that it can run nothing, and since when; null while it is healthy.
alter table worker add column unhealthy text;
alter table worker add column unhealthy_since_ms integer;
