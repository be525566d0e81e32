-- Schedules. A server of the build before does not fire them, and changes nothing about them.
create table schedule (
    name text not null primary key,
    -- Rises with every change and every fire: what is written is what was read.
    revision integer not null,
    configured integer not null,
    -- When a server must look at it next; none while it is paused or has ended.
    due integer,
    definition text not null,
    progress text not null,
    set_by text not null,
    created integer not null,
    updated integer not null
) without rowid;
create index schedule_due on schedule (due, name) where due is not null;
