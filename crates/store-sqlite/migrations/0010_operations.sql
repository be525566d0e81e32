-- Operations: changes of all jobs that match. A server of the build before does not go on with them, and
-- changes nothing about them. See docs/adr/041-bulk-operations.md.
create table operation (
    id blob not null primary key,
    -- Rises with every step: what is written is what was read.
    revision integer not null,
    kind text not null,
    about text not null,
    definition text not null,
    made_by text not null,
    status text not null,
    -- Up to where jobs were looked at.
    reached text,
    -- The server process that goes on with it.
    runner blob,
    matched integer not null,
    changed integer not null,
    skipped text not null,
    note text not null,
    created integer not null,
    updated integer not null,
    ended integer
) without rowid;
create index operation_created on operation (created, id);
create index operation_running on operation (id) where ended is null;
create index operation_ended on operation (ended, id) where ended is not null;
