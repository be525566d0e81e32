-- The hot tables hold what moves: a job is in exactly one of ready, waiting, active and
-- finished (a cancelled one whose process tree is awaited is in active and finished).
-- They are small and churn, so they keep room in each page and are vacuumed early.

create sequence job_seq as bigint;

create table class (
    id bigint primary key,
    queue text not null,
    job_type text not null,
    route text not null,
    tenant text not null,
    isolated boolean not null,
    unique (queue, job_type, route, tenant, isolated)
);

create table queue (
    name text primary key,
    paused boolean not null
);

-- Written once, never updated.
create table job_row (
    seq bigint primary key,
    id uuid not null,
    class bigint not null,
    priority smallint not null,
    rules text,
    timeout_ms bigint,
    visibility_ms bigint,
    strand_ms bigint,
    origin smallint not null,
    created bigint not null,
    scheduled_for bigint,
    expires_at bigint,
    args text not null,
    meta text not null,
    extra text not null,
    constraint job_row_id unique (id)
);

create table ready (
    class bigint not null,
    rank bigint not null,
    seq bigint not null,
    epoch bigint not null,
    life integer not null,
    failures integer not null,
    losses integer not null,
    interruptions integer not null,
    since bigint not null,
    strand_ms bigint,
    expires bigint,
    primary key (class, rank, seq)
) with (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2
);
create index ready_strand on ready (class, strand_ms, since, seq) where strand_ms is not null;

create table waiting (
    seq bigint primary key,
    state text not null,
    due bigint,
    epoch bigint not null,
    life integer not null,
    failures integer not null,
    losses integer not null,
    interruptions integer not null,
    isolated boolean not null,
    since bigint not null
) with (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
create index waiting_due on waiting (due, seq) where due is not null;

create table active (
    seq bigint primary key,
    epoch bigint not null,
    life integer not null,
    failures integer not null,
    losses integer not null,
    interruptions integer not null,
    isolated boolean not null,
    worker uuid,
    plain text,
    claimed bigint not null,
    started bigint,
    visible_until bigint,
    visibility_ms bigint,
    deadline bigint,
    cancelled boolean not null
) with (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
create index active_worker on active (worker, seq) where worker is not null;
create index active_plain on active (plain, seq) where plain is not null;
create index active_visible on active (visible_until, seq) where visible_until is not null;
create index active_deadline on active (deadline, seq) where deadline is not null;

create table finished (
    seq bigint primary key,
    state text not null,
    at bigint not null,
    epoch bigint not null,
    life integer not null,
    failures integer not null,
    losses integer not null,
    interruptions integer not null,
    isolated boolean not null,
    attempt integer not null,
    shown boolean not null,
    result text,
    error text,
    ended_by text not null
);
create index finished_at on finished (at, seq);

create table attempt_row (
    seq bigint not null,
    epoch bigint not null,
    life integer not null,
    number integer not null,
    worker uuid,
    plain text,
    claimed bigint not null,
    started bigint,
    finished bigint not null,
    outcome text not null,
    next_state text not null,
    error text,
    exit_code integer,
    by text not null,
    evidence text not null,
    primary key (seq, epoch)
);

create table expiry (
    at bigint not null,
    seq bigint not null,
    primary key (at, seq)
);

create table dead_letter_row (
    seq bigint primary key,
    reason text not null,
    at bigint not null
);

create table checkpoint (
    seq bigint primary key,
    bytes bytea not null
);

create table log (
    seq bigint not null,
    id bigint not null,
    epoch bigint not null,
    n bigint not null,
    stream smallint not null,
    at bigint not null,
    bytes bytea not null,
    primary key (seq, id)
);
create unique index log_chunk on log (seq, epoch, n);

create table log_size (
    seq bigint not null,
    epoch bigint not null,
    bytes bigint not null,
    primary key (seq, epoch)
);

-- One row a transaction; one serial writer a server.
create table event_batch (
    server uuid not null,
    n bigint not null,
    at bigint not null,
    body text not null,
    primary key (server, n)
);
create index event_batch_at on event_batch (at);

create table idempotency (
    key bytea primary key,
    request bytea not null,
    expires bigint not null
);
create index idempotency_expires on idempotency (expires);

create table idempotency_job (
    seq bigint primary key,
    key bytea not null
);
create index idempotency_job_key on idempotency_job (key, seq);

create table worker (
    id uuid primary key,
    name text not null,
    worker_role text not null,
    status text not null,
    state text not null,
    last_heartbeat timestamptz not null generated always as (to_timestamp(last_heartbeat_ms / 1000.0)) stored,
    created timestamptz not null generated always as (to_timestamp(created_ms / 1000.0)) stored,
    updated timestamptz not null generated always as (to_timestamp(updated_ms / 1000.0)) stored,
    phase smallint not null,
    liveness smallint not null,
    concurrency bigint not null,
    queues text not null,
    runtimes text not null,
    labels text not null,
    renewal_seq bigint not null,
    session_seq bigint not null,
    attachment bigint not null,
    lease_ms bigint not null,
    lease_until_ms bigint not null,
    last_heartbeat_ms bigint not null,
    created_ms bigint not null,
    updated_ms bigint not null,
    evidence text not null,
    about text not null,
    plain_id text
) with (fillfactor = 50);
create index worker_plain on worker (plain_id, created_ms) where plain_id is not null;

create view job as
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
    to_timestamp(f.at / 1000.0) as ended
from job_row j
join class c on c.id = j.class
left join finished f on f.seq = j.seq
left join active a on a.seq = j.seq
left join waiting w on w.seq = j.seq;

create view attempt as
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
    t.evidence as evidence
from attempt_row t
join job_row j on j.seq = t.seq;

create view dead_letter as
select
    j.id as job,
    c.queue as queue,
    c.job_type as type,
    d.reason as reason,
    to_timestamp(d.at / 1000.0) as at
from dead_letter_row d
join job_row j on j.seq = d.seq
join class c on c.id = j.class;

create view event as
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
    e.value ->> 'ev' as evidence
from event_batch b, jsonb_array_elements(b.body::jsonb) with ordinality e(value, i);

-- Ends a transaction in which a compare-and-set did not hit the rows that were locked for it.
create function outlast.exactly(hit bigint, wanted bigint) returns void
language plpgsql as $$
begin
    if hit <> wanted then
        raise exception 'compare-and-set hit % rows of %', hit, wanted using errcode = 'OL001';
    end if;
end $$;
