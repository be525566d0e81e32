-- Limits, and what they count. See docs/adr/016-limits.md.

create table limit_rule (
    name text primary key,
    -- queue, type or key, and which one.
    scope text not null,
    of text not null,
    concurrency bigint,
    rate_starts bigint,
    rate_period_ms bigint,
    -- Set by the configuration of a server.
    configured boolean not null,
    set_by text not null,
    set_at bigint not null
);

-- Rises with every change of a limit; one row. A claim notices limits that it does not know yet.
create table limit_version (
    n bigint not null
);
insert into limit_version (n) values (0);

-- What a limit counts: one row, or one for each value of its key. The number is derived from the
-- limit and the value; active.gates names it. A claim locks the gates that its jobs pass. Nothing
-- else does, so no end of an attempt waits for a claim.
create table gate (
    id bigint primary key,
    limit_name text not null,
    value text,
    -- Until when the starts so far use up the rate, in microseconds since the Unix epoch.
    used_until bigint not null
) with (fillfactor = 70, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index gate_limit on gate (limit_name);

-- How many attempts a gate counts. Each server has rows of its own, so that servers never wait for
-- each other; only the sum is meaningful, and a single row may be negative.
create table gate_held (
    gate bigint not null,
    server uuid not null,
    n bigint not null,
    primary key (gate, server)
) with (
    fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- The same numbers, counted from the running attempts: what tests compare with.
create view outlast.gate_counted as
select g.id, count(*)::bigint as in_flight
from active a cross join lateral unnest(a.gates) g(id)
where a.gates is not null
group by g.id;
