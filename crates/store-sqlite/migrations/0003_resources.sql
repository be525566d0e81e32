-- What an attempt used: the most memory that its processes had at a time, and the time that they
-- spent on processors. Null where that is not known.
alter table attempt_row add column peak_memory integer;
alter table attempt_row add column cpu_ms integer;

drop view attempt;
create view attempt as
select
    j.id as job,
    t.epoch as epoch,
    t.outcome as outcome,
    t.next_state as next_state,
    case when t.worker is not null then
        lower(substr(hex(t.worker), 1, 8) || '-' || substr(hex(t.worker), 9, 4) || '-'
            || substr(hex(t.worker), 13, 4) || '-' || substr(hex(t.worker), 17, 4) || '-'
            || substr(hex(t.worker), 21))
    else t.plain end as worker,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.claimed / 1000.0, 'unixepoch') as claimed,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.started / 1000.0, 'unixepoch') as started,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.finished / 1000.0, 'unixepoch') as finished,
    t.error as error,
    t.exit_code as exit_code,
    t.by as by,
    t.evidence as evidence,
    t.evidence_code as evidence_code,
    t.pack_digest as pack_digest,
    t.peak_memory as peak_memory_bytes,
    t.cpu_ms / 1000.0 as cpu_seconds
from attempt_row t
join job j on j.seq = t.seq;
