-- A job is in exactly one of ready, waiting, active and finished. (A cancelled job whose process
-- tree is still running is in active and finished.) ready, waiting and active are small and change
-- all the time, so they keep room in each page and are vacuumed early.

create sequence job_seq as bigint;

-- Jobs that are claimed together: what routes a job.
create table class (
    id bigint primary key,
    queue text not null,
    job_type text not null,
    route text not null,
    tenant text not null,
    isolated boolean not null,
    -- Whether its jobs have keys: they are in lanes then.
    keyed boolean not null default false,
    -- Whether plain clients may take its jobs: they run no actions and have no labels.
    plain boolean not null default true,
    unique (queue, job_type, route, tenant, isolated, keyed)
);

-- Settings are JSON, null where nothing was ever set. A name that is missing in it has no effect. A
-- change of them raises limit_version, as that of a limit does.
create table queue (
    name text primary key,
    paused boolean not null,
    settings text,
    -- Whether its jobs require labels, so that plain clients may not take them.
    labels_required boolean not null default false,
    set_by text,
    set_at bigint
);

-- The immutable part of a job: one insert, never updated.
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
    -- Which of its class's lanes the job is in; it follows from its keys, a JSON object sorted by
    -- name. Without keys, both are null.
    lane bigint,
    keys text,
    args text not null,
    meta text not null,
    extra text not null,
    constraint job_row_id unique (id)
);

-- Claimable jobs, in the order of claiming: rank is -2 × priority, less 1 at the front. Jobs without
-- keys are in lane 0, which the index of lanes leaves out.
create table ready (
    class bigint not null,
    rank bigint not null,
    seq bigint not null,
    lane bigint not null default 0,
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
create index ready_lane on ready (class, lane, rank, seq) where lane <> 0;
-- A class has few different limits; one index step for each finds the next job to time out.
create index ready_strand on ready (class, strand_ms, since, seq) where strand_ms is not null;

-- Scheduled, retryable and pending jobs.
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

-- Running attempts. Deleting a row by (seq, epoch) is the compare-and-set.
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
    cancelled boolean not null,
    -- The version of its pack.
    pack_digest text,
    -- The gates that count the attempt.
    gates bigint[]
) with (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
create index active_worker on active (worker, seq) where worker is not null;
create index active_plain on active (plain, seq) where plain is not null;
create index active_visible on active (visible_until, seq) where visible_until is not null;
create index active_deadline on active (deadline, seq) where deadline is not null;

-- Ended jobs. The primary key guarantees one terminal state per life.
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
-- Finds the few jobs that did not complete.
create index finished_failed on finished (seq) where state <> 'completed';

-- Jobs that must not start after a time. The sweep deletes rows of jobs that have ended.
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

-- How much an attempt has printed, and which chunks: to know whether a chunk is stored, no
-- partition of the output is read.
create table log_size (
    seq bigint not null,
    epoch bigint not null,
    bytes bigint not null,
    chunks bigint not null,
    stored int8multirange not null,
    primary key (seq, epoch)
);

-- Idempotency keys of producers.
create table idempotency (
    key bytea primary key,
    request bytea not null,
    expires bigint not null
);
create index idempotency_expires on idempotency (expires);

-- The jobs of each key.
create table idempotency_job (
    seq bigint primary key,
    key bytea not null
);
create index idempotency_job_key on idempotency_job (key, seq);

-- The job that took each unique key last. Keys change when jobs are stored, and go with their jobs.
-- See docs/adr/018-unique-jobs.md.
create table unique_key (
    fp bytea primary key,
    seq bigint not null
);
create index unique_key_seq on unique_key (seq);

create table public.worker (
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
create index worker_plain on public.worker (plain_id, created_ms) where plain_id is not null;
-- Live workers are read every second; the others are deleted in the end.
create index worker_live on public.worker (created_ms, id) where liveness < 2;
create index worker_gone on public.worker (updated_ms, id) where liveness >= 2;
-- A page of workers, latest first, and a worker by its name.
create index worker_created on public.worker (created_ms, id);
create index worker_name on public.worker (name);

-- The blocks of 1,024 jobs in which a class has jobs: a list of a queue or a type reads no other
-- blocks. Each connection that stores jobs has rows of its own, so that none waits for another.
create table class_block (
    class bigint not null,
    block bigint not null,
    writer integer not null,
    primary key (class, block, writer)
);
create index class_block_block on class_block (block);

-- Tasks that one server does for all, and until when it holds them.
create table duty (
    name text primary key,
    holder uuid not null,
    epoch bigint not null,
    until bigint not null
) with (fillfactor = 50);

-- The progress of an import. Until it is done, no server may use the store.
create table transfer (
    export uuid primary key,
    section text not null,
    stored bigint not null,
    done boolean not null
);

-- Rises from 1 with every restore of a backup; one row. Attempts that a worker got from a lower
-- generation are void.

create table generation (
    number bigint not null
);
insert into generation (number) values (1);

-- Fails the transaction if a compare-and-set did not hit exactly the rows it should.
create function outlast.exactly(hit bigint, wanted bigint) returns void
language plpgsql as $$
begin
    if hit <> wanted then
        raise exception 'compare-and-set hit % rows of %', hit, wanted using errcode = 'OL001';
    end if;
end $$;
