-- Sessions of browsers. A server of the build before knows none and deletes none: those that expire meanwhile
-- are deleted by the next server of this build. See docs/adr/040-dashboard-sessions.md.
create table browser_session (
    id uuid primary key,
    -- The hash of what the browser shows.
    secret bytea not null unique,
    -- What the token is known by that it is of.
    token bytea not null,
    name text not null,
    address text not null,
    agent text not null,
    created bigint not null,
    used bigint not null,
    expires bigint not null
) with (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
create index browser_session_token on browser_session (token, used);
create index browser_session_expires on browser_session (expires);
