-- A word for programs beside the evidence in words.
alter table attempt_row add column evidence_code text;

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
    t.evidence_code as evidence_code
from attempt_row t
join job j on j.seq = t.seq;

drop view event;
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
    e.value ->> 'ev' as evidence,
    e.value ->> 'ec' as evidence_code
from event_batch b, json_each(b.body) e;
