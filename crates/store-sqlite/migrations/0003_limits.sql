-- Limits, and what they count. See docs/adr/016-limits.md.

create table limit_rule (
    name text primary key,
    -- queue, type or key, and which one.
    scope text not null,
    of text not null,
    concurrency integer,
    rate_starts integer,
    rate_period_ms integer,
    -- Set by the configuration of a server.
    configured integer not null,
    set_by text not null,
    set_at integer not null
) without rowid;

-- What a limit counts: one row, or one for each value of its key. The number is derived from the
-- limit and the value; active.gates names it.
create table gate (
    id integer primary key,
    limit_name text not null,
    value text,
    in_flight integer not null,
    -- Until when the starts so far use up the rate, in microseconds since the Unix epoch.
    used_until integer not null
);
create index gate_limit on gate (limit_name, in_flight);

-- The same numbers, counted from the running attempts: what tests compare with.
create view gate_counted as
select g.value as id, count(*) as in_flight
from active a, json_each(a.gates) g
where a.gates is not null
group by g.value;
