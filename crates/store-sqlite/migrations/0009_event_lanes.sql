-- Events are kept in the order of writing. A lane has one writer, which numbers its batches one
-- after the other; each opening of the store begins a new one.
create table event_lane (
    id integer primary key check (id = 1),
    latest integer not null
);
create table event_batch_in_order (
    lane integer not null,
    n integer not null,
    server blob not null,
    at integer not null,
    body text not null,
    primary key (lane, n)
) without rowid;
insert into event_batch_in_order (lane, n, server, at, body)
    select 1, row_number() over (order by at, server, n), server, at, body from event_batch;
insert into event_lane (id, latest) select 1, 1 where exists (select 1 from event_batch);
drop view event;
drop table event_batch;
alter table event_batch_in_order rename to event_batch;
create index event_batch_at on event_batch (at);

-- The same, over the new table.
create view event as
select
    lower(hex(b.server)) as server,
    b.n as n,
    e.key as i,
    strftime('%Y-%m-%dT%H:%M:%fZ', (e.value ->> 't') / 1000.0, 'unixepoch') as at,
    e.value ->> 'k' as type,
    e.value ->> 'j' as job,
    e.value ->> 'w' as worker,
    e.value ->> 'e' as epoch,
    e.value ->> 's' as state,
    e.value ->> 'o' as outcome,
    e.value ->> 'by' as by,
    e.value ->> 'ev' as evidence
from event_batch b, json_each(b.body) e;
