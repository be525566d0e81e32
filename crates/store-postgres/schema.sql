table outlast.migration
    version integer not null
    at timestamp with time zone not null default clock_timestamp()
    digest text
    migration_pkey PRIMARY KEY (version)

table public.active with (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000, autovacuum_vacuum_cost_delay=0)
    seq bigint not null
    epoch bigint not null
    life integer not null
    failures integer not null
    losses integer not null
    interruptions integer not null
    isolated boolean not null
    worker uuid
    plain text
    claimed bigint not null
    started bigint
    visible_until bigint
    visibility_ms bigint
    deadline bigint
    cancelled boolean not null
    active_pkey PRIMARY KEY (seq)
    CREATE INDEX active_deadline ON public.active USING btree (deadline, seq) WHERE (deadline IS NOT NULL)
    CREATE INDEX active_plain ON public.active USING btree (plain, seq) WHERE (plain IS NOT NULL)
    CREATE INDEX active_visible ON public.active USING btree (visible_until, seq) WHERE (visible_until IS NOT NULL)
    CREATE INDEX active_worker ON public.active USING btree (worker, seq) WHERE (worker IS NOT NULL)

view public.attempt
    job uuid
    epoch bigint
    outcome text
    next_state text
    worker text
    claimed timestamp with time zone
    started timestamp with time zone
    finished timestamp with time zone
    error text
    exit_code integer
    by text
    evidence text

table public.attempt_row
    seq bigint not null
    epoch bigint not null
    life integer not null
    number integer not null
    worker uuid
    plain text
    claimed bigint not null
    started bigint
    finished bigint not null
    outcome text not null
    next_state text not null
    error text
    exit_code integer
    by text not null
    evidence text not null
    attempt_row_pkey PRIMARY KEY (seq, epoch)

table public.checkpoint
    seq bigint not null
    bytes bytea not null
    checkpoint_pkey PRIMARY KEY (seq)

table public.class
    id bigint not null
    queue text not null
    job_type text not null
    route text not null
    tenant text not null
    isolated boolean not null
    class_pkey PRIMARY KEY (id)
    class_queue_job_type_route_tenant_isolated_key UNIQUE (queue, job_type, route, tenant, isolated)

view public.dead_letter
    job uuid
    queue text
    type text
    reason text
    at timestamp with time zone

table public.dead_letter_row
    seq bigint not null
    reason text not null
    at bigint not null
    dead_letter_row_pkey PRIMARY KEY (seq)

table public.duty with (fillfactor=50)
    name text not null
    holder uuid not null
    epoch bigint not null
    until bigint not null
    duty_pkey PRIMARY KEY (name)

view public.event
    server uuid
    n bigint
    i bigint
    at timestamp with time zone
    type text
    job uuid
    worker uuid
    epoch bigint
    state text
    outcome text
    by text
    evidence text

table public.event_batch
    server uuid not null
    n bigint not null
    at bigint not null
    body text not null
    event_batch_pkey PRIMARY KEY (server, n)
    CREATE INDEX event_batch_at ON public.event_batch USING btree (at)

table public.expiry
    at bigint not null
    seq bigint not null
    expiry_pkey PRIMARY KEY (at, seq)

table public.finished
    seq bigint not null
    state text not null
    at bigint not null
    epoch bigint not null
    life integer not null
    failures integer not null
    losses integer not null
    interruptions integer not null
    isolated boolean not null
    attempt integer not null
    shown boolean not null
    result text
    error text
    ended_by text not null
    finished_pkey PRIMARY KEY (seq)
    CREATE INDEX finished_at ON public.finished USING btree (at, seq)

table public.idempotency
    key bytea not null
    request bytea not null
    expires bigint not null
    idempotency_pkey PRIMARY KEY (key)
    CREATE INDEX idempotency_expires ON public.idempotency USING btree (expires)

table public.idempotency_job
    seq bigint not null
    key bytea not null
    idempotency_job_pkey PRIMARY KEY (seq)
    CREATE INDEX idempotency_job_key ON public.idempotency_job USING btree (key, seq)

view public.job
    seq bigint
    id uuid
    queue text
    type text
    priority smallint
    state text
    epoch bigint
    args text
    meta text
    result text
    error text
    created timestamp with time zone
    ended timestamp with time zone

table public.job_row
    seq bigint not null
    id uuid not null
    class bigint not null
    priority smallint not null
    rules text
    timeout_ms bigint
    visibility_ms bigint
    strand_ms bigint
    origin smallint not null
    created bigint not null
    scheduled_for bigint
    expires_at bigint
    args text not null
    meta text not null
    extra text not null
    job_row_id UNIQUE (id)
    job_row_pkey PRIMARY KEY (seq)

sequence public.job_seq

table public.log
    seq bigint not null
    id bigint not null
    epoch bigint not null
    n bigint not null
    stream smallint not null
    at bigint not null
    bytes bytea not null
    log_pkey PRIMARY KEY (seq, id)
    CREATE UNIQUE INDEX log_chunk ON public.log USING btree (seq, epoch, n)

table public.log_size
    seq bigint not null
    epoch bigint not null
    bytes bigint not null
    log_size_pkey PRIMARY KEY (seq, epoch)

table public.queue
    name text not null
    paused boolean not null
    queue_pkey PRIMARY KEY (name)

table public.ready with (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_threshold=5000, autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0.2)
    class bigint not null
    rank bigint not null
    seq bigint not null
    epoch bigint not null
    life integer not null
    failures integer not null
    losses integer not null
    interruptions integer not null
    since bigint not null
    strand_ms bigint
    expires bigint
    ready_pkey PRIMARY KEY (class, rank, seq)
    CREATE INDEX ready_strand ON public.ready USING btree (class, strand_ms, since, seq) WHERE (strand_ms IS NOT NULL)

table public.transfer
    export uuid not null
    section text not null
    stored bigint not null
    done boolean not null
    transfer_pkey PRIMARY KEY (export)

table public.waiting with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000, autovacuum_vacuum_cost_delay=0)
    seq bigint not null
    state text not null
    due bigint
    epoch bigint not null
    life integer not null
    failures integer not null
    losses integer not null
    interruptions integer not null
    isolated boolean not null
    since bigint not null
    waiting_pkey PRIMARY KEY (seq)
    CREATE INDEX waiting_due ON public.waiting USING btree (due, seq) WHERE (due IS NOT NULL)

table public.worker with (fillfactor=50)
    id uuid not null
    name text not null
    worker_role text not null
    status text not null
    state text not null
    last_heartbeat timestamp with time zone not null generated as to_timestamp((((last_heartbeat_ms)::numeric / 1000.0))::double precision)
    created timestamp with time zone not null generated as to_timestamp((((created_ms)::numeric / 1000.0))::double precision)
    updated timestamp with time zone not null generated as to_timestamp((((updated_ms)::numeric / 1000.0))::double precision)
    phase smallint not null
    liveness smallint not null
    concurrency bigint not null
    queues text not null
    runtimes text not null
    labels text not null
    renewal_seq bigint not null
    session_seq bigint not null
    attachment bigint not null
    lease_ms bigint not null
    lease_until_ms bigint not null
    last_heartbeat_ms bigint not null
    created_ms bigint not null
    updated_ms bigint not null
    evidence text not null
    about text not null
    plain_id text
    worker_pkey PRIMARY KEY (id)
    CREATE INDEX worker_plain ON public.worker USING btree (plain_id, created_ms) WHERE (plain_id IS NOT NULL)

CREATE OR REPLACE FUNCTION outlast.exactly(hit bigint, wanted bigint)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
    if hit <> wanted then
        raise exception 'compare-and-set hit % rows of %', hit, wanted using errcode = 'OL001';
    end if;
end $function$
