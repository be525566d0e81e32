-- History is kept by UTC day, so that what is old is dropped and not deleted row by row. The
-- default partition takes what no day is there for: an insert never fails for want of one.

-- The partition of a day, counted from 1970-01-01.
create function outlast.day_name(parent text, day bigint) returns text
language sql stable as $$
    select parent || to_char(to_timestamp(day * 86400) at time zone 'UTC', '_YYYYMMDD')
$$;

-- Makes the partition of a day; says whether it did. Rows of that day that are in the default
-- partition move over, unless there are more than others should wait for.
create function outlast.add_day(parent text, day bigint, most bigint) returns boolean
language plpgsql set search_path = public as $$
declare
    part text := outlast.day_name(parent, day);
    rest text := parent || '_default';
    key text := case parent when 'attempt_row' then 'finished' else 'at' end;
    low bigint := day * 86400000;
    high bigint := low + 86400000;
    astray bigint;
begin
    if to_regclass(part) is not null then
        return false;
    end if;
    execute format('lock table %I in share update exclusive mode', parent);
    if to_regclass(part) is not null then
        return false;
    end if;
    execute format('lock table %I in access exclusive mode', rest);
    execute format('select count(*) from (select 1 from %I where %I >= %s and %I < %s limit %s) x',
        rest, key, low, key, high, most + 1) into astray;
    if astray > most then
        return false;
    end if;
    execute format('create table %I (like %I)', part, parent);
    if astray > 0 then
        execute format('with gone as (delete from %I where %I >= %s and %I < %s returning *)
            insert into %I select * from gone', rest, key, low, key, high, part);
    end if;
    execute format('alter table %I attach partition %I for values from (%s) to (%s)',
        parent, part, low, high);
    return true;
end $$;

-- Drops the partition of a day; says whether it did. The rows of the jobs to be kept move to
-- the default partition.
create function outlast.drop_day(parent text, day bigint, keep bigint[]) returns boolean
language plpgsql set search_path = public as $$
declare
    part text := outlast.day_name(parent, day);
begin
    execute format('lock table %I in access exclusive mode', parent);
    if to_regclass(part) is null then
        return false;
    end if;
    execute format('alter table %I detach partition %I', parent, part);
    if cardinality(keep) > 0 then
        execute format('insert into %I select * from %I where seq = any($1)', parent, part)
            using keep;
    end if;
    execute format('drop table %I', part);
    return true;
end $$;

alter table event_batch rename to event_batch_before;
alter index event_batch_pkey rename to event_batch_before_pkey;
alter index event_batch_at rename to event_batch_before_at;
alter table attempt_row rename to attempt_row_before;
alter index attempt_row_pkey rename to attempt_row_before_pkey;
alter table log rename to log_before;
alter index log_pkey rename to log_before_pkey;

-- One row a transaction; one serial writer a server.
create table event_batch (
    server uuid not null,
    n bigint not null,
    at bigint not null,
    body text not null,
    primary key (server, n, at)
) partition by range (at);
create index event_batch_at on event_batch (at);
create table event_batch_default partition of event_batch default;

create table attempt_row (
    seq bigint not null,
    epoch bigint not null,
    life integer not null,
    number integer not null,
    worker uuid,
    plain text,
    claimed bigint not null,
    started bigint,
    finished bigint not null,
    outcome text not null,
    next_state text not null,
    error text,
    exit_code integer,
    by text not null,
    evidence text not null,
    primary key (seq, epoch, finished)
) partition by range (finished);
create table attempt_row_default partition of attempt_row default;

create table log (
    seq bigint not null,
    id bigint not null,
    epoch bigint not null,
    n bigint not null,
    stream smallint not null,
    at bigint not null,
    bytes bytea not null,
    primary key (seq, id, at)
) partition by range (at);
create table log_default partition of log default;

-- What is kept of an attempt's output: how many chunks, and which. No partition is looked
-- into to find out whether a chunk is there.
alter table log_size add column chunks bigint, add column stored int8multirange;
update log_size s set chunks = l.chunks, stored = l.stored
    from (select seq, epoch, count(*) as chunks, range_agg(int8range(n, n + 1)) as stored
          from log_before group by seq, epoch) l
    where l.seq = s.seq and l.epoch = s.epoch;
update log_size set chunks = 0, stored = '{}' where stored is null;
alter table log_size alter column chunks set not null, alter column stored set not null;

-- The same, over the new tables.
create or replace view job as
select
    j.seq as seq,
    j.id as id,
    c.queue as queue,
    c.job_type as type,
    j.priority as priority,
    coalesce(
        f.state,
        case when a.seq is not null then 'active' end,
        w.state,
        'available'
    ) as state,
    coalesce(a.epoch, f.epoch, w.epoch,
        (select max(t.epoch) from attempt_row t where t.seq = j.seq), 0) as epoch,
    j.args as args,
    j.meta as meta,
    f.result as result,
    f.error as error,
    to_timestamp(j.created / 1000.0) as created,
    to_timestamp(f.at / 1000.0) as ended
from job_row j
join class c on c.id = j.class
left join finished f on f.seq = j.seq
left join active a on a.seq = j.seq
left join waiting w on w.seq = j.seq;

create or replace view attempt as
select
    j.id as job,
    t.epoch as epoch,
    t.outcome as outcome,
    t.next_state as next_state,
    coalesce(t.worker::text, t.plain) as worker,
    to_timestamp(t.claimed / 1000.0) as claimed,
    to_timestamp(t.started / 1000.0) as started,
    to_timestamp(t.finished / 1000.0) as finished,
    t.error as error,
    t.exit_code as exit_code,
    t.by as by,
    t.evidence as evidence
from attempt_row t
join job_row j on j.seq = t.seq;

create or replace view event as
select
    b.server as server,
    b.n as n,
    e.i - 1 as i,
    to_timestamp((e.value ->> 't')::bigint / 1000.0) as at,
    e.value ->> 'k' as type,
    (e.value ->> 'j')::uuid as job,
    (e.value ->> 'w')::uuid as worker,
    (e.value ->> 'e')::bigint as epoch,
    e.value ->> 's' as state,
    e.value ->> 'o' as outcome,
    e.value ->> 'by' as by,
    e.value ->> 'ev' as evidence
from event_batch b, jsonb_array_elements(b.body::jsonb) with ordinality e(value, i);

-- Days that something is there for, but not those of a clock that was wrong; and some ahead.
do $$
declare
    today bigint := floor(extract(epoch from clock_timestamp()) / 86400);
    parent text;
    key text;
    day bigint;
begin
    foreach parent in array array['event_batch', 'attempt_row', 'log'] loop
        key := case parent when 'attempt_row' then 'finished' else 'at' end;
        for day in execute format('select distinct %I / 86400000 from %I where %I between %s and %s
            union select generate_series(%s::bigint, %s::bigint) order by 1',
            key, parent || '_before', key, (today - 400) * 86400000, today * 86400000,
            today, today + 3)
        loop
            perform outlast.add_day(parent, day, 0);
        end loop;
        execute format('insert into %I select * from %I', parent, parent || '_before');
        execute format('drop table %I', parent || '_before');
    end loop;
end $$;
