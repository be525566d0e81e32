-- What people query, in the schema `public`.

create view public.job as
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

create view public.attempt as
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
    t.evidence as evidence,
    t.evidence_code as evidence_code,
    t.pack_digest as pack_digest
from attempt_row t
join job_row j on j.seq = t.seq;

create view public.dead_letter as
select
    j.id as job,
    c.queue as queue,
    c.job_type as type,
    d.reason as reason,
    to_timestamp(d.at / 1000.0) as at
from dead_letter_row d
join job_row j on j.seq = d.seq
join class c on c.id = j.class;

create view public.event as
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
    e.value ->> 'ev' as evidence,
    e.value ->> 'ec' as evidence_code
from event_batch b, jsonb_array_elements(b.body::jsonb) with ordinality e(value, i);
