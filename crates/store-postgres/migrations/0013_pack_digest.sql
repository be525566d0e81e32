-- Which version of its pack an attempt ran.
alter table active add column pack_digest text;
alter table attempt_row add column pack_digest text;

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
    t.evidence_code as evidence_code,
    t.pack_digest as pack_digest
from attempt_row t
join job_row j on j.seq = t.seq;
