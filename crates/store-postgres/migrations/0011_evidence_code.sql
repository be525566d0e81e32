-- A word for programs beside the evidence in words.
alter table attempt_row add column evidence_code text;

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
    t.evidence as evidence,
    t.evidence_code as evidence_code
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
    e.value ->> 'ev' as evidence,
    e.value ->> 'ec' as evidence_code
from event_batch b, jsonb_array_elements(b.body::jsonb) with ordinality e(value, i);
