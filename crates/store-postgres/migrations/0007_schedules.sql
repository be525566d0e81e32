-- Schedules. A server of the build before does not fire them, and changes nothing about them.
create table schedule (
    name text collate "C" primary key,
    -- Rises with every change and every fire: what is written is what was read.
    revision bigint not null,
    configured boolean not null,
    -- When a server must look at it next; none while it is paused or has ended.
    due bigint,
    definition text not null,
    progress text not null,
    set_by text not null,
    created bigint not null,
    updated bigint not null
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
create index schedule_due on schedule (due, name) where due is not null;
