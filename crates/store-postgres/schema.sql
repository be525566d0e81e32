table outlast.active with (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000, autovacuum_vacuum_cost_delay=0)
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
    pack_digest text
    gates bigint[]
    active_pkey PRIMARY KEY (seq)
    CREATE INDEX active_deadline ON outlast.active USING btree (deadline, seq) WHERE (deadline IS NOT NULL)
    CREATE INDEX active_plain ON outlast.active USING btree (plain, seq) WHERE (plain IS NOT NULL)
    CREATE INDEX active_visible ON outlast.active USING btree (visible_until, seq) WHERE (visible_until IS NOT NULL)
    CREATE INDEX active_worker ON outlast.active USING btree (worker, seq) WHERE (worker IS NOT NULL)

table outlast.arrival with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000, autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0.2)
    n bigint not null
    id uuid not null
    tenant text
    envelope text not null
    wake boolean not null
    arrival_id UNIQUE (id)
    arrival_pkey PRIMARY KEY (n)
    arrival_wake TRIGGER DEFERRABLE INITIALLY DEFERRED
    CREATE CONSTRAINT TRIGGER arrival_wake AFTER INSERT ON outlast.arrival DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (new.wake) EXECUTE FUNCTION wake()

sequence outlast.arrival_n_seq

table outlast.arrival_watch with (fillfactor=50)
    id integer not null
    until bigint not null
    arrival_watch_id_check CHECK ((id = 1))
    arrival_watch_pkey PRIMARY KEY (id)

table outlast.attempt_row partition by RANGE (finished)
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
    evidence_code text
    pack_digest text
    peak_memory bigint
    cpu_ms bigint
    charge smallint
    attempt_row_pkey PRIMARY KEY (seq, epoch, finished)

table outlast.batch_slot with (fillfactor=10, autovacuum_vacuum_threshold=1000)
    server uuid not null
    slot bigint not null
    n bigint not null
    at bigint not null
    lane bigint not null
    bounds bigint not null
    batch_slot_pkey PRIMARY KEY (server, slot)

table outlast.browser_session with (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    id uuid not null
    secret bytea not null
    token bytea not null
    name text not null
    address text not null
    agent text not null
    created bigint not null
    used bigint not null
    expires bigint not null
    browser_session_pkey PRIMARY KEY (id)
    browser_session_secret_key UNIQUE (secret)
    CREATE INDEX browser_session_expires ON outlast.browser_session USING btree (expires)
    CREATE INDEX browser_session_token ON outlast.browser_session USING btree (token, used)

table outlast.checkpoint
    seq bigint not null
    bytes bytea not null
    checkpoint_pkey PRIMARY KEY (seq)

table outlast.class
    id bigint not null
    queue text not null
    job_type text not null
    route text not null
    tenant text not null
    isolated boolean not null
    keyed boolean not null default false
    plain boolean not null default true
    class_pkey PRIMARY KEY (id)
    class_queue_job_type_route_tenant_isolated_keyed_key UNIQUE (queue, job_type, route, tenant, isolated, keyed)

table outlast.class_block
    class bigint not null
    block bigint not null
    writer integer not null
    class_block_pkey PRIMARY KEY (class, block, writer)
    CREATE INDEX class_block_block ON outlast.class_block USING btree (block)

table outlast.dead_letter_row
    seq bigint not null
    reason text not null
    at bigint not null
    unhandled boolean not null default true
    dead_letter_row_pkey PRIMARY KEY (seq)
    CREATE INDEX dead_letter_unhandled ON outlast.dead_letter_row USING btree (seq) WHERE unhandled

table outlast.depth with (fillfactor=50, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    queue text not null
    server uuid not null
    n bigint not null
    depth_pkey PRIMARY KEY (queue, server)

table outlast.depth_slot with (fillfactor=40, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    server uuid not null
    slot bigint not null
    queue text not null
    n bigint not null
    depth_slot_pkey PRIMARY KEY (server, slot, queue)

table outlast.duty with (fillfactor=50)
    name text not null
    holder uuid not null
    epoch bigint not null
    until bigint not null
    duty_pkey PRIMARY KEY (name)

table outlast.event_batch partition by RANGE (at)
    lane bigint not null
    n bigint not null
    server uuid not null
    at bigint not null
    body text not null
    rare bigint
    event_batch_pkey PRIMARY KEY (lane, n, at)
    CREATE INDEX event_batch_at ON ONLY outlast.event_batch USING btree (at)
    CREATE INDEX event_batch_rare ON ONLY outlast.event_batch USING btree (at, lane, n) WHERE (rare IS DISTINCT FROM 0)

table outlast.event_lane
    id bigint not null
    latest bigint not null
    event_lane_id_check CHECK ((id = 1))
    event_lane_pkey PRIMARY KEY (id)

table outlast.expiry
    at bigint not null
    seq bigint not null
    expiry_pkey PRIMARY KEY (at, seq)

table outlast.failover
    timeline bigint not null
    server uuid not null
    at bigint not null
    lost boolean not null
    settled boolean not null
    failover_pkey PRIMARY KEY (timeline, server)

table outlast.finished
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
    CREATE INDEX finished_at ON outlast.finished USING btree (at, seq)
    CREATE INDEX finished_failed ON outlast.finished USING btree (seq) WHERE (state <> 'completed'::text)

table outlast.gate with (fillfactor=70, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    id bigint not null
    limit_name text not null
    value text
    used_until bigint not null
    gate_pkey PRIMARY KEY (id)
    CREATE INDEX gate_limit ON outlast.gate USING btree (limit_name)

view outlast.gate_counted
    id bigint
    in_flight bigint

table outlast.gate_held with (fillfactor=50, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    gate bigint not null
    server uuid not null
    n bigint not null
    gate_held_pkey PRIMARY KEY (gate, server)

table outlast.generation
    number bigint not null
    restored bigint not null

table outlast.idempotency
    key bytea not null
    request bytea not null
    expires bigint not null
    idempotency_pkey PRIMARY KEY (key)
    CREATE INDEX idempotency_expires ON outlast.idempotency USING btree (expires)

table outlast.idempotency_job
    seq bigint not null
    key bytea not null
    idempotency_job_pkey PRIMARY KEY (seq)
    CREATE INDEX idempotency_job_key ON outlast.idempotency_job USING btree (key, seq)

table outlast.job_row
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
    lane bigint
    keys text
    args text not null
    meta text not null
    extra text not null
    job_row_id UNIQUE (id)
    job_row_pkey PRIMARY KEY (seq)

sequence outlast.job_seq

table outlast.limit_rule
    name text not null
    scope text not null
    of text not null
    concurrency bigint
    rate_starts bigint
    rate_period_ms bigint
    configured boolean not null
    set_by text not null
    set_at bigint not null
    limit_rule_pkey PRIMARY KEY (name)

table outlast.limit_version
    n bigint not null

view outlast.live_depth
    queue text
    n bigint

view outlast.live_queue_tally
    queue text
    scheduled bigint
    available bigint
    pending bigint
    active bigint
    completed bigint
    retryable bigint
    cancelled bigint
    discarded bigint
    started bigint
    exhausted bigint
    abandoned bigint

view outlast.live_ready_second
    queue text
    second bigint
    jobs bigint

view outlast.live_tally
    class bigint
    scheduled bigint
    available bigint
    pending bigint
    active bigint
    completed bigint
    retryable bigint
    cancelled bigint
    discarded bigint
    started bigint
    exhausted bigint
    abandoned bigint

table outlast.log partition by RANGE (at)
    seq bigint not null
    id bigint not null
    epoch bigint not null
    n bigint not null
    stream smallint not null
    at bigint not null
    bytes bytea not null
    log_pkey PRIMARY KEY (seq, id, at)

table outlast.log_size
    seq bigint not null
    epoch bigint not null
    bytes bigint not null
    chunks bigint not null
    stored int8multirange not null
    log_size_pkey PRIMARY KEY (seq, epoch)

table outlast.migration
    version integer not null
    at timestamp with time zone not null default clock_timestamp()
    digest text not null
    migration_pkey PRIMARY KEY (version)

table outlast.operation with (fillfactor=50, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    id uuid not null
    revision bigint not null
    kind text not null
    about text not null
    definition text not null
    made_by text not null
    status text not null
    reached text
    runner uuid
    matched bigint not null
    changed bigint not null
    skipped text not null
    note text not null
    created bigint not null
    updated bigint not null
    ended bigint
    operation_pkey PRIMARY KEY (id)
    CREATE INDEX operation_created ON outlast.operation USING btree (created, id)
    CREATE INDEX operation_ended ON outlast.operation USING btree (ended, id) WHERE (ended IS NOT NULL)
    CREATE INDEX operation_running ON outlast.operation USING btree (id) WHERE (ended IS NULL)

table outlast.queue
    name text not null
    paused boolean not null
    settings text
    labels_required boolean not null default false
    set_by text
    set_at bigint
    queue_pkey PRIMARY KEY (name)

table outlast.queue_tally with (fillfactor=40, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    queue text not null
    server uuid not null
    scheduled bigint not null
    available bigint not null
    pending bigint not null
    active bigint not null
    completed bigint not null
    retryable bigint not null
    cancelled bigint not null
    discarded bigint not null
    started bigint not null
    exhausted bigint not null
    abandoned bigint not null
    queue_tally_pkey PRIMARY KEY (queue, server)

table outlast.ready with (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_threshold=5000, autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0.2)
    class bigint not null
    rank bigint not null
    seq bigint not null
    lane bigint not null default 0
    epoch bigint not null
    life integer not null
    failures integer not null
    losses integer not null
    interruptions integer not null
    since bigint not null
    strand_ms bigint
    expires bigint
    ready_pkey PRIMARY KEY (class, rank, seq)
    CREATE INDEX ready_lane ON outlast.ready USING btree (class, lane, rank, seq) WHERE (lane <> 0)
    CREATE INDEX ready_strand ON outlast.ready USING btree (class, strand_ms, since, seq) WHERE (strand_ms IS NOT NULL)

table outlast.ready_second with (fillfactor=50, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    queue text not null
    second bigint not null
    server uuid not null
    jobs bigint not null
    ready_second_pkey PRIMARY KEY (queue, second, server)

view outlast.ready_second_counted
    queue text
    second bigint
    jobs bigint

table outlast.ready_second_slot with (fillfactor=50, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    server uuid not null
    slot bigint not null
    queue text not null
    second bigint not null
    jobs bigint not null
    ready_second_slot_pkey PRIMARY KEY (server, slot, queue, second)

table outlast.schedule with (fillfactor=50, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    name text not null
    revision bigint not null
    configured boolean not null
    due bigint
    definition text not null
    progress text not null
    set_by text not null
    created bigint not null
    updated bigint not null
    schedule_pkey PRIMARY KEY (name)
    CREATE INDEX schedule_due ON outlast.schedule USING btree (due, name) WHERE (due IS NOT NULL)

table outlast.server_batch with (fillfactor=10, autovacuum_vacuum_threshold=1000)
    server uuid not null
    n bigint not null
    at bigint not null
    lane bigint
    slot bigint
    bounds bigint not null default ((EXTRACT(epoch FROM clock_timestamp()) * (1000000)::numeric))::bigint
    server_batch_pkey PRIMARY KEY (server)

table outlast.tally with (fillfactor=40, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    class bigint not null
    server uuid not null
    scheduled bigint not null
    available bigint not null
    pending bigint not null
    active bigint not null
    completed bigint not null
    retryable bigint not null
    cancelled bigint not null
    discarded bigint not null
    started bigint not null
    exhausted bigint not null
    abandoned bigint not null
    tally_class_fkey FOREIGN KEY (class) REFERENCES class(id)
    tally_pkey PRIMARY KEY (class, server)

view outlast.tally_counted
    class bigint
    scheduled bigint
    available bigint
    pending bigint
    active bigint
    completed bigint
    retryable bigint
    cancelled bigint
    discarded bigint
    started bigint
    exhausted bigint
    abandoned bigint

table outlast.tally_slot with (fillfactor=40, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    server uuid not null
    slot bigint not null
    class bigint not null
    scheduled bigint not null
    available bigint not null
    pending bigint not null
    active bigint not null
    completed bigint not null
    retryable bigint not null
    cancelled bigint not null
    discarded bigint not null
    started bigint not null
    exhausted bigint not null
    abandoned bigint not null
    tally_slot_class_fkey FOREIGN KEY (class) REFERENCES class(id)
    tally_slot_pkey PRIMARY KEY (server, slot, class)
    CREATE TRIGGER keep_queue_tally AFTER DELETE ON outlast.tally_slot REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION keep_queue_tally()

table outlast.transfer
    export uuid not null
    section text not null
    stored bigint not null
    done boolean not null
    transfer_pkey PRIMARY KEY (export)

table outlast.unique_key
    fp bytea not null
    seq bigint not null
    unique_key_pkey PRIMARY KEY (fp)
    CREATE INDEX unique_key_seq ON outlast.unique_key USING btree (seq)

table outlast.waiting with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000, autovacuum_vacuum_cost_delay=0)
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
    CREATE INDEX waiting_due ON outlast.waiting USING btree (due, seq) WHERE (due IS NOT NULL)

table outlast.worker_order
    selector text not null
    kind text not null
    set_by text not null
    set_at bigint not null
    worker_order_pkey PRIMARY KEY (selector)

table outlast.workflow with (fillfactor=50, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    id uuid not null
    revision bigint not null
    status text not null
    due bigint
    finished bigint
    name text not null
    tenant text not null
    parent uuid
    parent_step bigint
    parent_item bigint
    parent_keeps boolean
    created bigint not null
    updated bigint not null
    progress text not null
    definition text not null
    workflow_pkey PRIMARY KEY (id)
    CREATE INDEX workflow_created ON outlast.workflow USING btree (created, id)
    CREATE INDEX workflow_due ON outlast.workflow USING btree (due, id) WHERE (due IS NOT NULL)
    CREATE INDEX workflow_finished ON outlast.workflow USING btree (finished, id) WHERE (finished IS NOT NULL)
    CREATE INDEX workflow_running ON outlast.workflow USING btree (id) WHERE (status = 'running'::text)

table outlast.workflow_end with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    number bigint not null
    workflow uuid not null
    step bigint not null
    item bigint not null
    keeps boolean not null
    job uuid
    child uuid
    what text not null
    error text
    result text
    at bigint not null
    workflow_end_pkey PRIMARY KEY (number)
    CREATE INDEX workflow_end_at ON outlast.workflow_end USING btree (at, workflow)
    CREATE INDEX workflow_end_of ON outlast.workflow_end USING btree (workflow, number)

sequence outlast.workflow_end_number_seq

table outlast.workflow_item with (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    workflow uuid not null
    step bigint not null
    item bigint not null
    state text not null
    job uuid
    child uuid
    input text
    result text
    workflow_item_pkey PRIMARY KEY (workflow, step, item)
    CREATE INDEX workflow_item_held ON outlast.workflow_item USING btree (workflow, step, item) WHERE (state = 'held'::text)
    CREATE INDEX workflow_item_running ON outlast.workflow_item USING btree (workflow, step, item) WHERE (state = 'running'::text)

table outlast.workflow_step with (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    workflow uuid not null
    step bigint not null
    state text not null
    workflow_step_pkey PRIMARY KEY (workflow, step)

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
    evidence_code text
    pack_digest text
    peak_memory_bytes bigint
    cpu_seconds numeric

view public.dead_letter
    job uuid
    queue text
    type text
    reason text
    at timestamp with time zone

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
    evidence_code text

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
    keys text

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
    unhealthy text
    unhealthy_since_ms bigint
    ordered text
    ordered_ms bigint
    previous uuid
    followed_by uuid
    evidence_code text
    worker_pkey PRIMARY KEY (id)
    CREATE INDEX worker_created ON public.worker USING btree (created_ms, id)
    CREATE INDEX worker_gone ON public.worker USING btree (updated_ms, id) WHERE (liveness >= 2)
    CREATE INDEX worker_live ON public.worker USING btree (created_ms, id) WHERE (liveness < 2)
    CREATE INDEX worker_name ON public.worker USING btree (name)
    CREATE INDEX worker_plain ON public.worker USING btree (plain_id, created_ms) WHERE (plain_id IS NOT NULL)

CREATE OR REPLACE FUNCTION outlast.add_day(parent text, day bigint, most bigint)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'outlast', 'pg_temp'
AS $function$
declare
    part text := outlast.day_name(parent, day);
    rest text := parent || '_default';
    key text := case parent when 'attempt_row' then 'finished' else 'at' end;
    low bigint := day * 86400000;
    high bigint := low + 86400000;
    astray bigint;
begin
    if to_regclass(part) is not null then
        return false;
    end if;
    execute format('lock table %I in share update exclusive mode', parent);
    if to_regclass(part) is not null then
        return false;
    end if;
    execute format('lock table %I in access exclusive mode', rest);
    execute format('select count(*) from (select 1 from %I where %I >= %s and %I < %s limit %s) x',
        rest, key, low, key, high, most + 1) into astray;
    if astray > most then
        return false;
    end if;
    execute format('create table %I (like %I)', part, parent);
    if astray > 0 then
        execute format('with gone as (delete from %I where %I >= %s and %I < %s returning *)
            insert into %I select * from gone', rest, key, low, key, high, part);
    end if;
    execute format('alter table %I attach partition %I for values from (%s) to (%s)',
        parent, part, low, high);
    return true;
end $function$

CREATE OR REPLACE FUNCTION outlast.begin_slot(server_id uuid, batch bigint, known bigint, slot_id bigint)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
    now constant bigint := (extract(epoch from clock_timestamp()) * 1000)::bigint;
    mine server_batch;
    latest bigint;
begin
    select * into mine from server_batch b where b.server = server_id for update;
    select n into latest from batch_slot b where b.server = server_id and b.slot = mine.slot;
    if greatest(mine.n, latest) >= batch then
        raise exception 'batch % was applied before', batch using errcode = 'OL004';
    elsif mine.lane is null then
        raise exception 'server % has no lane', server_id using errcode = 'OL005';
    elsif mine.bounds <> known then
        raise exception 'queues were bounded' using errcode = 'OL001';
    elsif slot_id <> batch then
        raise exception 'slot % of server % has ended', slot_id, server_id using errcode = 'OL005';
    end if;
    if mine.slot is not null then
        perform outlast.end_slot(server_id, mine.slot);
    end if;
    insert into batch_slot (server, slot, n, at, lane, bounds)
    values (server_id, batch, batch, now, mine.lane, mine.bounds);
    update server_batch set n = batch, at = now, slot = batch where server = server_id;
end $function$

CREATE OR REPLACE FUNCTION outlast.close_lanes(server_id uuid, since bigint)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
    other record;
    ended batch_slot;
begin
    for other in
        select b.server, b.slot from server_batch b
        where b.lane is not null and b.at < since and b.server <> server_id
        for update skip locked
    loop
        if other.slot is not null then
            perform 1 from batch_slot b
            where b.server = other.server and b.slot = other.slot and b.at < since
            for update skip locked;
            continue when not found;
            ended := outlast.end_slot(other.server, other.slot);
        end if;
        update server_batch set lane = null, slot = null, n = greatest(n, ended.n),
            at = greatest(at, ended.at)
        where server = other.server;
        ended := null;
    end loop;
end $function$

CREATE OR REPLACE FUNCTION outlast.count_ready_seconds()
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'outlast', 'pg_temp'
AS $function$
begin
    perform 1 from server_batch order by server for update;
    perform 1 from server_batch b
    join batch_slot s on s.server = b.server and s.slot = b.slot order by b.server for update of s;
    delete from ready_second;
    delete from ready_second_slot;
    insert into ready_second
    select c.queue, v.second, '00000000-0000-0000-0000-000000000000', sum(c.jobs)
    from ready_second_counted c
    cross join lateral (values (c.second), (-1::bigint)) v(second)
    group by 1, 2;
end $function$

CREATE OR REPLACE FUNCTION outlast.count_tally()
 RETURNS void
 LANGUAGE sql
 SET search_path TO 'outlast', 'pg_temp'
AS $function$
    delete from tally;
    delete from tally_slot;
    delete from queue_tally;
    delete from depth;
    delete from depth_slot;
    insert into tally
        select class, '00000000-0000-0000-0000-000000000000', scheduled, available, pending, active,
            completed, retryable, cancelled, discarded, started, exhausted, abandoned
        from outlast.tally_counted;
    insert into queue_tally
        select c.queue, t.server, sum(t.scheduled), sum(t.available), sum(t.pending), sum(t.active),
            sum(t.completed), sum(t.retryable), sum(t.cancelled), sum(t.discarded), sum(t.started),
            sum(t.exhausted), sum(t.abandoned)
        from tally t join class c on c.id = t.class group by c.queue, t.server;
    insert into depth
        select c.queue, '00000000-0000-0000-0000-000000000000',
            sum(t.scheduled + t.available + t.pending + t.retryable)
        from tally t join class c on c.id = t.class group by c.queue;
    select outlast.count_ready_seconds();
$function$

CREATE OR REPLACE FUNCTION outlast.day_name(parent text, day bigint)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
    select parent || to_char(to_timestamp(day * 86400) at time zone 'UTC', '_YYYYMMDD')
$function$

CREATE OR REPLACE FUNCTION outlast.drop_day(parent text, day bigint, keep bigint[])
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'outlast', 'pg_temp'
AS $function$
declare
    part text := outlast.day_name(parent, day);
begin
    execute format('lock table %I in access exclusive mode', parent);
    if to_regclass(part) is null then
        return false;
    end if;
    execute format('alter table %I detach partition %I', parent, part);
    if cardinality(keep) > 0 then
        execute format('insert into %I select * from %I where seq = any($1)', parent, part)
            using keep;
    end if;
    execute format('drop table %I', part);
    return true;
end $function$

CREATE OR REPLACE FUNCTION outlast.end_slot(server_id uuid, slot_id bigint)
 RETURNS batch_slot
 LANGUAGE plpgsql
AS $function$
declare
    ended batch_slot;
    empty_queues text[];
    empty_seconds bigint[];
begin
    delete from batch_slot b where b.server = server_id and b.slot = slot_id returning * into ended;
    with gone as (
        delete from depth_slot s where s.server = server_id and s.slot = slot_id returning *)
    insert into depth as d (queue, server, n) select queue, server, n from gone order by queue
    on conflict (queue, server) do update set n = d.n + excluded.n;
    with gone as (
        delete from ready_second_slot s where s.server = server_id and s.slot = slot_id
        returning *),
    kept as (
        insert into ready_second as r (queue, second, server, jobs)
        select queue, second, server, jobs from gone where jobs <> 0 order by queue, second
        on conflict (queue, second, server) do update set jobs = r.jobs + excluded.jobs
        returning r.queue, r.second, r.jobs)
    select array_agg(queue), array_agg(second) into empty_queues, empty_seconds
    from kept where jobs = 0;
    -- Seconds pass: rows of those that no job waits from any more would stay.
    if empty_queues is not null then
        delete from ready_second r using unnest(empty_queues, empty_seconds) e(queue, second)
        where r.queue = e.queue and r.second = e.second and r.server = server_id;
    end if;
    with gone as (
        delete from tally_slot s where s.server = server_id and s.slot = slot_id returning *)
    insert into tally as t (class, server, scheduled, available, pending, active, completed,
                            retryable, cancelled, discarded, started, exhausted, abandoned)
    select class, server, scheduled, available, pending, active, completed, retryable, cancelled,
        discarded, started, exhausted, abandoned
    from gone order by class
    on conflict (class, server) do update set
        scheduled = t.scheduled + excluded.scheduled,
        available = t.available + excluded.available,
        pending = t.pending + excluded.pending,
        active = t.active + excluded.active,
        completed = t.completed + excluded.completed,
        retryable = t.retryable + excluded.retryable,
        cancelled = t.cancelled + excluded.cancelled,
        discarded = t.discarded + excluded.discarded,
        started = t.started + excluded.started,
        exhausted = t.exhausted + excluded.exhausted,
        abandoned = t.abandoned + excluded.abandoned;
    return ended;
end $function$

CREATE OR REPLACE FUNCTION outlast.enqueue(type text, args jsonb DEFAULT '[]'::jsonb, queue text DEFAULT NULL::text, priority integer DEFAULT NULL::integer, scheduled_at timestamp with time zone DEFAULT NULL::timestamp with time zone, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, timeout interval DEFAULT NULL::interval, visibility_timeout interval DEFAULT NULL::interval, retry jsonb DEFAULT NULL::jsonb, overlap text DEFAULT NULL::text, meta jsonb DEFAULT NULL::jsonb, tags text[] DEFAULT NULL::text[], id uuid DEFAULT NULL::uuid, tenant text DEFAULT NULL::text, wake boolean DEFAULT true, keys jsonb DEFAULT NULL::jsonb, requires text DEFAULT NULL::text, prefers text DEFAULT NULL::text)
 RETURNS uuid
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
declare
    new_id constant uuid := coalesce(enqueue.id, outlast.new_id());
    -- A key that is null is refused, and not left out: its job would escape its limits.
    options constant jsonb := jsonb_strip_nulls(jsonb_build_object(
        'queue', queue,
        'priority', priority,
        'scheduled_at', outlast.time_text('scheduled_at', scheduled_at),
        'expires_at', outlast.time_text('expires_at', expires_at),
        'timeout_ms', (extract(epoch from timeout) * 1000)::bigint,
        'visibility_timeout_ms', (extract(epoch from visibility_timeout) * 1000)::bigint,
        'retry', retry,
        'overlap', overlap,
        'tags', tags,
        'requires', requires,
        'prefers', prefers
    )) || case when keys is null then '{}'::jsonb else jsonb_build_object('keys', keys) end;
    job constant jsonb := jsonb_strip_nulls(jsonb_build_object(
            'type', enqueue.type,
            'id', new_id))
        || case when options = '{}' then '{}'::jsonb
            else jsonb_build_object('options', options) end
        || jsonb_build_object('args', args)
        || case when meta is null then '{}'::jsonb else jsonb_build_object('meta', meta) end;
    wrong constant text := coalesce(outlast.problem(job), outlast.tenant_problem(tenant));
begin
    if wrong is not null then
        raise exception '%', wrong using errcode = 'OL002';
    end if;
    if not exists (select 1 from outlast.job_row j where j.id = new_id) then
        insert into outlast.arrival (id, tenant, envelope, wake)
        values (new_id, enqueue.tenant, job::text, enqueue.wake)
        on conflict on constraint arrival_id do nothing;
    end if;
    if not found then
        raise exception 'job % already exists', new_id using errcode = 'OL003';
    end if;
    return new_id;
end $function$

CREATE OR REPLACE FUNCTION outlast.enqueue_all(jobs jsonb, tenant text DEFAULT NULL::text, wake boolean DEFAULT true)
 RETURNS SETOF uuid
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
declare
    many integer;
    stored integer;
    at bigint;
    wrong text;
    ids uuid[];
    taken uuid;
begin
    if jobs is null or jsonb_typeof(jobs) <> 'array' then
        raise exception 'field `jobs` must be an array of jobs' using errcode = 'OL002';
    end if;
    many := jsonb_array_length(jobs);
    if many = 0 then
        raise exception 'field `jobs` must hold at least one job' using errcode = 'OL002';
    elsif many > 10000 then
        raise exception 'field `jobs` holds % jobs; at most 10000 are taken', many
            using errcode = 'OL002';
    end if;
    select e.n - 1, p.wrong into at, wrong
        from jsonb_array_elements(jobs) with ordinality e(job, n)
        cross join lateral (select outlast.problem(e.job) as wrong) p
        where p.wrong is not null order by e.n limit 1;
    if wrong is not null then
        raise exception 'jobs[%]: %', at, wrong using errcode = 'OL002';
    end if;
    wrong := outlast.tenant_problem(tenant);
    if wrong is not null then
        raise exception '%', wrong using errcode = 'OL002';
    end if;
    ids := array(
        select coalesce((nullif(e.job -> 'id', 'null') #>> '{}')::uuid, outlast.new_id())
        from jsonb_array_elements(jobs) with ordinality e(job, n) order by e.n);
    with put as (
        insert into outlast.arrival (id, tenant, envelope, wake)
        select ids[e.n], enqueue_all.tenant, (e.job || jsonb_build_object('id', ids[e.n]))::text,
            enqueue_all.wake and e.n = 1
        from jsonb_array_elements(jobs) with ordinality e(job, n)
        where not exists (select 1 from outlast.job_row j where j.id = ids[e.n])
        order by e.n
        on conflict on constraint arrival_id do nothing returning 1)
    select count(*) into stored from put;
    if stored <> many then
        -- A job that is known already, or that is given twice.
        select u.id into taken from unnest(ids) with ordinality u(id, n)
            where exists (select 1 from outlast.job_row j where j.id = u.id)
                or exists (select 1 from unnest(ids) with ordinality v(id, n)
                           where v.id = u.id and v.n < u.n)
            order by u.n limit 1;
        raise exception 'job % already exists', coalesce(taken, ids[1]) using errcode = 'OL003';
    end if;
    return query select unnest(ids);
end $function$

CREATE OR REPLACE FUNCTION outlast.exactly(hit bigint, wanted bigint)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
begin
    if hit <> wanted then
        raise exception 'compare-and-set hit % rows of %', hit, wanted using errcode = 'OL001';
    end if;
end $function$

CREATE OR REPLACE FUNCTION outlast.fence_off(server_id uuid, batch bigint)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
begin
    if outlast.latest_batch(server_id) >= batch then
        return true;
    end if;
    update batch_slot s set n = batch from server_batch b
    where b.server = server_id and s.server = b.server and s.slot = b.slot;
    update server_batch set n = batch where server = server_id;
    return false;
end $function$

CREATE OR REPLACE FUNCTION outlast.is_id(given jsonb)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
    select jsonb_typeof(given) = 'string' and given #>> '{}'
        ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$'
$function$

CREATE OR REPLACE FUNCTION outlast.is_length(given jsonb)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
    select coalesce(case
        when jsonb_typeof(given) in ('number', 'string')
            then floor(outlast.length(given #>> '{}')) <= outlast.longest()
        end, false)
$function$

CREATE OR REPLACE FUNCTION outlast.is_time(given jsonb)
 RETURNS boolean
 LANGUAGE plpgsql
 STABLE PARALLEL SAFE
AS $function$
declare
    words text := given #>> '{}';
begin
    if jsonb_typeof(given) <> 'string' then
        return false;
    end if;
    if words like '+P%' then
        return outlast.is_length(to_jsonb(substring(words from 2)));
    end if;
    if words !~ ('^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?'
            || '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$') then
        return false;
    end if;
    perform words::timestamptz;
    return true;
exception when data_exception then
    return false;
end $function$

CREATE OR REPLACE FUNCTION outlast.is_whole(given jsonb)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
    select jsonb_typeof(given) = 'number' and given #>> '{}' ~ '^[0-9]{1,18}$'
$function$

CREATE OR REPLACE FUNCTION outlast.keep_queue_tally()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'outlast', 'pg_temp'
AS $function$
begin
    insert into queue_tally as t (queue, server, scheduled, available, pending, active, completed,
                                  retryable, cancelled, discarded, started, exhausted, abandoned)
    select c.queue, g.server, sum(g.scheduled), sum(g.available), sum(g.pending), sum(g.active),
        sum(g.completed), sum(g.retryable), sum(g.cancelled), sum(g.discarded), sum(g.started),
        sum(g.exhausted), sum(g.abandoned)
    from gone g
    join class c on c.id = g.class
    group by c.queue, g.server order by c.queue, g.server
    on conflict (queue, server) do update set
        scheduled = t.scheduled + excluded.scheduled,
        available = t.available + excluded.available,
        pending = t.pending + excluded.pending,
        active = t.active + excluded.active,
        completed = t.completed + excluded.completed,
        retryable = t.retryable + excluded.retryable,
        cancelled = t.cancelled + excluded.cancelled,
        discarded = t.discarded + excluded.discarded,
        started = t.started + excluded.started,
        exhausted = t.exhausted + excluded.exhausted,
        abandoned = t.abandoned + excluded.abandoned;
    return null;
end $function$

CREATE OR REPLACE FUNCTION outlast.keys_problem(keys jsonb)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE
AS $function$
declare
    expected constant text :=
        'field `keys` must be an object of texts such as `{"tenant": "42"}`';
    many integer;
    name text;
    given text;
begin
    if keys is null then
        return null;
    elsif jsonb_typeof(keys) <> 'object' then
        return expected;
    elsif exists (
        select 1 from jsonb_each(keys) e
        where jsonb_typeof(e.value) not in ('string', 'number', 'boolean'))
    then
        return expected;
    end if;
    many := (select count(*) from jsonb_object_keys(keys));
    if many > 4 then
        return format('field `keys` holds %s keys; at most 4 are taken', many);
    end if;
    for name, given in select key, value from jsonb_each_text(keys) order by key collate "C" loop
        if name !~ '^[a-z0-9_.-]{1,64}$' then
            return format('field `keys` names a key `%s`; a name has 1 to 64 characters '
                || 'out of a-z, 0-9, `_`, `.` and `-`', name);
        elsif octet_length(given) > 256 then
            return format('field `keys` has a value for `%s` of %s bytes; at most 256 are taken',
                name, octet_length(given));
        end if;
    end loop;
    return null;
end $function$

CREATE OR REPLACE FUNCTION outlast.latest_batch(server_id uuid)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
declare
    mine server_batch;
    latest bigint;
begin
    select * into mine from server_batch b where b.server = server_id for update;
    select n into latest from batch_slot b
    where b.server = server_id and b.slot = mine.slot for update;
    return greatest(mine.n, latest);
end $function$

CREATE OR REPLACE FUNCTION outlast.longest()
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$ select 3162240000000 $function$

CREATE OR REPLACE FUNCTION outlast.new_id()
 RETURNS uuid
 LANGUAGE sql
 PARALLEL SAFE
AS $function$
    select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
        from 1 for 6), 52, 1), 53, 1), 'hex')::uuid
$function$

CREATE OR REPLACE FUNCTION outlast.open_batch(server_id uuid, batch bigint, known bigint, slot_id bigint)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
begin
    update batch_slot set n = batch, at = (extract(epoch from clock_timestamp()) * 1000)::bigint
    where server = server_id and slot = slot_id and n < batch
        and (known is null or bounds = known);
    if not found then
        perform outlast.begin_slot(server_id, batch, known, slot_id);
    end if;
    return (extract(epoch from clock_timestamp()) * 1000)::bigint;
end $function$

CREATE OR REPLACE FUNCTION outlast.length(words text)
 RETURNS numeric
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
    select case
        when words ~ '^[0-9]+ms$' then rtrim(words, 'ms')::numeric
        when words ~ '^[0-9]+([.,][0-9]+)?[smhd]?$' then
            replace(rtrim(words, 'smhd'), ',', '.')::numeric * case right(words, 1)
                when 'm' then 60000 when 'h' then 3600000 when 'd' then 86400000 else 1000 end
        when words ~ '[WDHMS]$'
            and words ~ ('^P([0-9]+([.,][0-9]+)?W)?([0-9]+([.,][0-9]+)?D)?'
                || '(T([0-9]+([.,][0-9]+)?H)?([0-9]+([.,][0-9]+)?M)?([0-9]+([.,][0-9]+)?S)?)?$')
        then (
            select sum(replace(part[1], ',', '.')::numeric * case part[2]
                when 'W' then 604800000 when 'D' then 86400000 when 'H' then 3600000
                when 'M' then 60000 else 1000 end)
            from regexp_matches(words, '([0-9.,]+)([WDHMS])', 'g') part)
        end
$function$

CREATE OR REPLACE FUNCTION outlast.problem(job jsonb)
 RETURNS text
 LANGUAGE plpgsql
 STABLE PARALLEL SAFE
AS $function$
declare
    given jsonb;
    bytes integer;
begin
    if job is null or jsonb_typeof(job) <> 'object' then
        return 'a job must be an object';
    end if;
    bytes := octet_length(job::text);
    if bytes > 1048576 then
        return format('the job is %s bytes long; at most 1048576 are taken', bytes);
    end if;
    if bytes > 128 and jsonb_path_exists(job,
        'strict $.**{64} ? (@.type() == "object" || @.type() == "array")')
    then
        return 'the job is nested more than 64 levels deep';
    end if;
    given := nullif(job -> 'type', 'null');
    if given is null then
        return 'field `type` is missing';
    elsif jsonb_typeof(given) <> 'string' then
        return 'field `type` must be a text';
    elsif octet_length(given #>> '{}') > 255 or given #>> '{}' !~ '^[a-z][a-z0-9_-]*([.][a-z0-9][a-z0-9_-]*)*$'
    then
        return 'field `type` must be lower-case words joined by dots, such as `email.send`';
    end if;
    given := nullif(job -> 'args', 'null');
    if given is null then
        return 'field `args` is missing';
    elsif jsonb_typeof(given) <> 'array' then
        return 'field `args` must be an array';
    end if;
    if jsonb_typeof(nullif(job -> 'meta', 'null')) <> 'object' then
        return 'field `meta` must be an object';
    end if;
    if not outlast.is_id(nullif(job -> 'id', 'null')) then
        return 'field `id` must be a UUIDv7 in lower case';
    end if;
    if jsonb_typeof(nullif(job -> 'options', 'null')) <> 'object' then
        return 'field `options` must be an object';
    end if;
    if outlast.wish(job, 'rate_limit') is not null then
        return 'field `rate_limit` is not supported by this server';
    end if;
    if outlast.wish(job, 'unique') is not null then
        return 'field `unique` is not supported for jobs that are stored by SQL';
    end if;
    given := outlast.wish(job, 'queue');
    if jsonb_typeof(given) <> 'string' then
        return 'field `queue` must be a text';
    elsif octet_length(given #>> '{}') > 255 or given #>> '{}' !~ '^[a-z0-9][a-z0-9._-]*$' then
        return 'field `queue` must be lower-case letters, digits, `-`, `_` and `.`, '
            || 'starting with a letter or digit';
    end if;
    given := outlast.wish(job, 'priority');
    if jsonb_typeof(given) <> 'number' or given #>> '{}' !~ '^-?[0-9]{1,3}$'
        or (given #>> '{}')::integer not between -100 and 100
    then
        return 'field `priority` must be a whole number from -100 to 100';
    end if;
    if outlast.wish(job, 'overlap') not in ('"allowed"', '"forbidden"') then
        return 'field `overlap` must be `allowed` or `forbidden`';
    end if;
    if jsonb_typeof(outlast.wish(job, 'pending')) <> 'boolean' then
        return 'field `pending` must be true or false';
    end if;
    given := outlast.wish(job, 'retry');
    return coalesce(outlast.time_problem(job), outlast.keys_problem(outlast.wish(job, 'keys')),
        outlast.selector_problem('requires', outlast.wish(job, 'requires')),
        outlast.selector_problem('prefers', outlast.wish(job, 'prefers')),
        case when outlast.wish(job, 'pending') = 'true' and coalesce(
            outlast.wish(job, 'scheduled_at'), outlast.wish(job, 'delay_until'),
            outlast.wish(job, 'delay_ms'), outlast.wish(job, 'delay')) is not null
        then
            'field `pending` must be left out of a job with a time: it runs once it is activated'
        end,
        case when given is not null then outlast.retry_problem(given) end);
end $function$

CREATE OR REPLACE FUNCTION outlast.retry_problem(retry jsonb)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE
AS $function$
declare
    name text;
    given jsonb;
begin
    if jsonb_typeof(retry) <> 'object' then
        return 'field `retry` must be an object';
    end if;
    for name, given in select key, value from jsonb_each(retry) where value <> 'null' loop
        case name
        when 'max_attempts' then
            if not outlast.is_whole(given) or (given #>> '{}')::bigint > 10000 then
                return 'field `retry.max_attempts` must be a whole number from 0 to 10000';
            end if;
        when 'initial_interval_ms', 'max_interval_ms' then
            if not outlast.is_whole(given) then
                return format('field `retry.%s` must be a whole number of milliseconds', name);
            end if;
        when 'initial_interval', 'max_interval' then
            if not outlast.is_length(given)
                    and nullif(retry -> (name || '_ms'), 'null') is null then
                return format('field `retry.%s` must be an ISO 8601 duration such as `PT1S`',
                    name);
            end if;
        when 'backoff_coefficient' then
            if jsonb_typeof(given) <> 'number' or (given #>> '{}')::numeric not between 1 and 1000
            then
                return 'field `retry.backoff_coefficient` must be a number from 1 to 1000';
            end if;
        when 'backoff_strategy', 'backoff_type' then
            if given not in ('"constant"', '"none"', '"linear"', '"exponential"', '"polynomial"') then
                return format('field `retry.%s` must be `constant`, `linear`, `exponential` or `polynomial`',
                    name);
            end if;
        when 'jitter' then
            if jsonb_typeof(given) <> 'boolean' then
                return 'field `retry.jitter` must be true or false';
            end if;
        when 'non_retryable_errors' then
            if jsonb_typeof(given) <> 'array' or jsonb_array_length(given) > 100
                or jsonb_path_exists(given, 'strict $[*] ? (@.type() <> "string")')
            then
                return 'field `retry.non_retryable_errors` must be an array of at most 100 texts';
            end if;
        when 'on_exhaustion' then
            if given not in ('"discard"', '"dead_letter"') then
                return 'field `retry.on_exhaustion` must be `discard` or `dead_letter`';
            end if;
        else null;
        end case;
    end loop;
    return null;
end $function$

CREATE OR REPLACE FUNCTION outlast.selector_problem(field text, given jsonb)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE
AS $function$
declare
    word constant text := '[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?';
    label constant text := format('(?:[A-Za-z0-9.-]{1,253}/)?%s', word);
    value constant text := format('(?:%s)?', word);
    requirement constant text := format(
        '(?:!\s*%1$s|%1$s\s*(?:==|=|!=)\s*%2$s|%1$s\s+(?:in|notin)\s*[(]\s*%2$s(?:\s*,\s*%2$s)*\s*[)]|%1$s)',
        label, value);
    example constant text := '`gpu=true, zone in (a, b), !spot`';
begin
    if given is null then
        return null;
    elsif jsonb_typeof(given) <> 'string' then
        return format('field `%s` must be a text such as %s', field, example);
    elsif octet_length(given #>> '{}') > 1024 then
        return format('field `%s` is no selector: it has more than 1024 bytes', field);
    elsif given #>> '{}' !~ format('^\s*(?:%1$s(?:\s*,\s*%1$s)*)?\s*$', requirement) then
        return format('field `%s` is no selector; one looks like %s', field, example);
    end if;
    return null;
end $function$

CREATE OR REPLACE FUNCTION outlast.take_lane(server_id uuid)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
declare
    now constant bigint := (extract(epoch from clock_timestamp()) * 1000)::bigint;
    given bigint;
begin
    perform pg_advisory_xact_lock_shared(119200062993523);
    perform outlast.close_lanes(server_id, now - 60000);
    insert into server_batch (server, n, at) values (server_id, -1, now) on conflict do nothing;
    perform 1 from server_batch b where b.server = server_id and b.lane is null for update;
    if found then
        insert into event_lane as e (id, latest) values (1, 1)
            on conflict (id) do update set latest = e.latest + 1
            returning latest into given;
        update server_batch set lane = given where server = server_id;
    end if;
end $function$

CREATE OR REPLACE FUNCTION outlast.tenant_problem(tenant text)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
    select case when tenant !~ '^[ -~]{1,255}$'
        then 'field `tenant` must be 1 to 255 printable characters' end
$function$

CREATE OR REPLACE FUNCTION outlast.time_problem(job jsonb)
 RETURNS text
 LANGUAGE plpgsql
 STABLE PARALLEL SAFE
AS $function$
declare
    name text;
    given jsonb;
begin
    foreach name in array array['timeout_ms', 'visibility_timeout_ms', 'delay_ms'] loop
        given := outlast.wish(job, name);
        if given is null then
            continue;
        elsif jsonb_typeof(given) <> 'number' or given #>> '{}' !~ '^[0-9]+$'
            or (given #>> '{}')::numeric not between 1 and 9223372036854775807
        then
            return format('field `%s` must be a whole number of milliseconds above 0', name);
        elsif (given #>> '{}')::numeric > outlast.longest() then
            return format('field `%s` must be at most %s milliseconds, a hundred years', name,
                outlast.longest());
        end if;
    end loop;
    foreach name in array array['timeout', 'visibility_timeout', 'delay'] loop
        given := outlast.wish(job, name);
        if given is not null and outlast.wish(job, name || '_ms') is null
            and (not outlast.is_length(given) or given #>> '{}' !~ '[1-9]')
        then
            return format('field `%s` must be a duration such as `PT30S`', name);
        end if;
    end loop;
    foreach name in array array['scheduled_at', 'delay_until', 'expires_at'] loop
        given := outlast.wish(job, name);
        if given is not null and not outlast.is_time(given) then
            return format('field `%s` must be a time such as `2030-01-31T12:00:00Z`, '
                || 'or relative such as `+PT30S`', name);
        end if;
    end loop;
    given := outlast.wish(job, 'expires_at');
    if given #>> '{}' like '+%' then
        return null;
    elsif (given #>> '{}')::timestamptz <= clock_timestamp() then
        return 'field `expires_at` must be a time to come: the job has already expired';
    end if;
    return null;
end $function$

CREATE OR REPLACE FUNCTION outlast.time_text(name text, at timestamp with time zone)
 RETURNS text
 LANGUAGE plpgsql
 STABLE
AS $function$
begin
    if at < '0001-01-01 00:00Z' or at >= '10000-01-01 00:00Z' then
        raise exception 'field `%` must be a time of the years 1 to 9999', name
            using errcode = 'OL002';
    end if;
    return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
end $function$

CREATE OR REPLACE FUNCTION outlast.wake()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
begin
    if not exists (
        select 1 from outlast.arrival_watch w
        where w.id = 1 and w.until > extract(epoch from clock_timestamp()) * 1000 + 200)
    then
        perform pg_notify('outlast', '{"say":["a"]}');
    end if;
    return null;
end $function$

CREATE OR REPLACE FUNCTION outlast.wish(job jsonb, name text)
 RETURNS jsonb
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
    select coalesce(nullif(job -> 'options' -> name, 'null'), nullif(job -> name, 'null'))
$function$
