-- Workflows. A server of the build before does not move them on, and notes no ends of their jobs. Those
-- are found within a minute.
create table workflow (
    id blob not null primary key,
    -- Rises with every change: what is written is what was read.
    revision integer not null,
    status text not null,
    -- When a server must look at it next, whatever happens to its jobs.
    due integer,
    finished integer,
    name text not null,
    tenant text not null,
    -- The item of another workflow that started it.
    parent blob,
    parent_step integer,
    parent_item integer,
    parent_keeps integer,
    created integer not null,
    updated integer not null,
    progress text not null,
    definition text not null
) without rowid;
create index workflow_due on workflow (due, id) where due is not null;
create index workflow_created on workflow (created, id);
create index workflow_running on workflow (id) where status = 'running';
create index workflow_finished on workflow (finished, id) where finished is not null;

-- How steps stand. One that waits has no row.
create table workflow_step (
    workflow blob not null,
    step integer not null,
    state text not null,
    primary key (workflow, step)
) without rowid;

-- Which job or workflow carries out which item.
create table workflow_item (
    workflow blob not null,
    step integer not null,
    item integer not null,
    state text not null,
    job blob,
    child blob,
    input text,
    result text,
    primary key (workflow, step, item)
) without rowid;

create index workflow_item_held on workflow_item (workflow, step, item) where state = 'held';
create index workflow_item_running on workflow_item (workflow, step, item) where state = 'running';

-- Ends of items that no server has looked at. Each is noted in the transaction that ends the job.
create table workflow_end (
    number integer primary key,
    workflow blob not null,
    step integer not null,
    item integer not null,
    keeps integer not null,
    job blob,
    child blob,
    what text not null,
    error text,
    result text,
    at integer not null
);
create index workflow_end_of on workflow_end (workflow, number);
create index workflow_end_at on workflow_end (at, workflow);
