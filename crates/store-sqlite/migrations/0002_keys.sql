-- Keys of jobs. Jobs with keys are in classes of their own, and there in the lane that follows from
-- their keys. Jobs without keys are in lane 0, which the index leaves out.

-- SQLite cannot change a unique constraint, so the table is made again. It is not renamed: that
-- fails while a view names it.
create table class_before as select * from class;
drop table class;

-- What routes a job. Numbers rise from 1 and are not used again.
create table class (
    id integer primary key,
    queue text not null,
    job_type text not null,
    route text not null,
    tenant text not null,
    isolated integer not null,
    keyed integer not null default 0,
    unique (queue, job_type, route, tenant, isolated, keyed)
);
insert into class (id, queue, job_type, route, tenant, isolated, keyed)
    select id, queue, job_type, route, tenant, isolated, 0 from class_before order by id;
drop table class_before;

-- Keys are a JSON object, sorted by name. Without keys, both are null.
alter table job_row add column keys text;
alter table job_row add column lane integer;

alter table ready add column lane integer not null default 0;
create index ready_lane on ready (class, lane, rank, seq) where lane <> 0;

-- What the attempt uses of limits: a JSON array.
alter table active add column gates text;

drop view job;
create view job as
select
    j.seq as seq,
    lower(substr(hex(j.id), 1, 8) || '-' || substr(hex(j.id), 9, 4) || '-' || substr(hex(j.id), 13, 4)
        || '-' || substr(hex(j.id), 17, 4) || '-' || substr(hex(j.id), 21)) as id,
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
    strftime('%Y-%m-%dT%H:%M:%fZ', j.created / 1000.0, 'unixepoch') as created,
    strftime('%Y-%m-%dT%H:%M:%fZ', f.at / 1000.0, 'unixepoch') as ended,
    j.keys as keys
from job_row j
join class c on c.id = j.class
left join finished f on f.seq = j.seq
left join active a on a.seq = j.seq
left join waiting w on w.seq = j.seq;
