-- History is partitioned by UTC day, so that old days are dropped and not deleted row by row. The
-- default partition takes rows of days without a partition, so an insert never fails.

-- The name of the partition of a day; days are counted from 1970-01-01.
create function outlast.day_name(parent text, day bigint) returns text
language sql stable as $$
    select parent || to_char(to_timestamp(day * 86400) at time zone 'UTC', '_YYYYMMDD')
$$;

-- Creates the partition of a day; returns whether it did. Rows of that day move over from the
-- default partition. If there are more than `most`, nothing is done: others would wait too long.
create function outlast.add_day(parent text, day bigint, most bigint) returns boolean
language plpgsql set search_path = outlast, pg_temp as $$
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

-- Drops the partition of a day; returns whether it did. Rows of the jobs in `keep` move to the
-- default partition.
create function outlast.drop_day(parent text, day bigint, keep bigint[]) returns boolean
language plpgsql set search_path = outlast, pg_temp as $$
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

-- One row for each batch that logs something: a JSON array of events.
create table event_batch (
    lane bigint not null,
    n bigint not null,
    server uuid not null,
    at bigint not null,
    body text not null,
    primary key (lane, n, at)
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
    evidence_code text,
    pack_digest text,
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

-- Partitions for today and the next days.
do $$
declare
    today bigint := floor(extract(epoch from clock_timestamp()) / 86400);
    parent text;
    day bigint;
begin
    foreach parent in array array['event_batch', 'attempt_row', 'log'] loop
        for day in today..today + 3 loop
            perform outlast.add_day(parent, day, 0);
        end loop;
    end loop;
end $$;
