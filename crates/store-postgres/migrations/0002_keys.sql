-- Keys of jobs. Jobs with keys are in classes of their own, and there in the lane that follows from
-- their keys. Jobs without keys are in lane 0, which the index leaves out.

alter table class add column keyed boolean not null default false;
alter table class
    drop constraint class_queue_job_type_route_tenant_isolated_key,
    add unique (queue, job_type, route, tenant, isolated, keyed);

-- Keys are a JSON object, sorted by name. Without keys, both are null.
alter table job_row add column keys text, add column lane bigint;

alter table ready add column lane bigint not null default 0;
create index ready_lane on ready (class, lane, rank, seq) where lane <> 0;

-- What the attempt uses of limits.
alter table active add column gates bigint[];

create or replace view public.job as
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
    to_timestamp(f.at / 1000.0) as ended,
    j.keys as keys
from job_row j
join class c on c.id = j.class
left join finished f on f.seq = j.seq
left join active a on a.seq = j.seq
left join waiting w on w.seq = j.seq;
