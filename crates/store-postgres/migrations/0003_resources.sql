-- What an attempt used: the most memory that its processes had at a time, and the time that they
-- spent on processors. Null where that is not known.
alter table attempt_row add column peak_memory bigint;
alter table attempt_row add column cpu_ms bigint;

create or replace view public.attempt as
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
    t.pack_digest as pack_digest,
    t.peak_memory as peak_memory_bytes,
    t.cpu_ms / 1000.0 as cpu_seconds
from attempt_row t
join job_row j on j.seq = t.seq;
