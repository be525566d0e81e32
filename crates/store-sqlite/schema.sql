CREATE INDEX active_deadline on active (deadline) where deadline is not null;

CREATE INDEX active_plain on active (plain, seq) where plain is not null;

CREATE INDEX active_visible on active (visible_until) where visible_until is not null;

CREATE INDEX active_worker on active (worker) where worker is not null;

CREATE INDEX browser_session_expires on browser_session (expires);

CREATE INDEX browser_session_token on browser_session (token, used);

CREATE INDEX class_block_block on class_block (block);

CREATE INDEX dead_letter_unhandled on dead_letter_row (seq) where unhandled = 1;

CREATE INDEX event_batch_rare on event_batch (lane, n) where rare is not 0;

CREATE INDEX finished_at on finished (at);

CREATE INDEX finished_failed on finished (seq) where state <> 'completed';

CREATE INDEX gate_limit on gate (limit_name, in_flight);

CREATE INDEX idempotency_expires on idempotency (expires);

CREATE INDEX idempotency_job_key on idempotency_job (key, seq);

CREATE UNIQUE INDEX log_chunk on log (seq, epoch, n);

CREATE INDEX operation_created on operation (created, id);

CREATE INDEX operation_ended on operation (ended, id) where ended is not null;

CREATE INDEX operation_running on operation (id) where ended is null;

CREATE INDEX ready_lane on ready (class, lane, rank, seq) where lane <> 0;

CREATE INDEX ready_strand on ready (class, strand_ms, since, seq) where strand_ms is not null;

CREATE INDEX schedule_due on schedule (due, name) where due is not null;

CREATE INDEX unique_key_seq on unique_key (seq);

CREATE INDEX waiting_due on waiting (due) where due is not null;

CREATE INDEX worker_created on worker (created_ms, id);

CREATE INDEX worker_gone on worker (updated_ms, id) where liveness >= 2;

CREATE INDEX worker_live on worker (created_ms, id) where liveness < 2;

CREATE INDEX worker_name on worker (name);

CREATE INDEX worker_plain on worker (plain_id) where plain_id is not null;

CREATE INDEX workflow_created on workflow (created, id);

CREATE INDEX workflow_due on workflow (due, id) where due is not null;

CREATE INDEX workflow_end_at on workflow_end (at, workflow);

CREATE INDEX workflow_end_of on workflow_end (workflow, number);

CREATE INDEX workflow_finished on workflow (finished, id) where finished is not null;

CREATE INDEX workflow_item_held on workflow_item (workflow, step, item) where state = 'held';

CREATE INDEX workflow_item_running on workflow_item (workflow, step, item) where state = 'running';

CREATE INDEX workflow_running on workflow (id) where status = 'running';

CREATE TABLE active (
    seq integer primary key,
    epoch integer not null,
    life integer not null,
    failures integer not null,
    losses integer not null,
    interruptions integer not null,
    isolated integer not null,
    worker blob,
    plain text,
    claimed integer not null,
    started integer,
    visible_until integer,
    visibility_ms integer,
    deadline integer,
    cancelled integer not null,
    -- The version of its pack.
    pack_digest text,
    -- The gates that count the attempt: a JSON array.
    gates text
);

CREATE TABLE attempt_row (
    seq integer not null,
    epoch integer not null,
    life integer not null,
    number integer not null,
    worker blob,
    plain text,
    claimed integer not null,
    started integer,
    finished integer not null,
    outcome text not null,
    next_state text not null,
    error text,
    exit_code integer,
    by text not null,
    evidence text not null,
    -- The evidence as one word, for programs.
    evidence_code text,
    pack_digest text, peak_memory integer, cpu_ms integer, charge integer,
    primary key (seq, epoch)
) without rowid;

CREATE TABLE browser_session (
    id blob not null primary key,
    -- The hash of what the browser shows.
    secret blob not null unique,
    -- What the token is known by that it is of.
    token blob not null,
    name text not null,
    address text not null,
    agent text not null,
    created integer not null,
    used integer not null,
    expires integer not null
) without rowid;

CREATE TABLE checkpoint (
    seq integer primary key,
    bytes blob not null
);

CREATE TABLE class (
    id integer primary key,
    queue text not null,
    job_type text not null,
    route text not null,
    tenant text not null,
    isolated integer not null,
    -- Whether its jobs have keys: they are in lanes then.
    keyed integer not null default 0,
    unique (queue, job_type, route, tenant, isolated, keyed)
);

CREATE TABLE class_block (
    class integer not null,
    block integer not null,
    primary key (class, block)
) without rowid;

CREATE TABLE dead_letter_row (
    seq integer primary key,
    reason text not null,
    at integer not null
, unhandled integer not null default 0);

CREATE TABLE duty (
    name text primary key,
    holder blob not null,
    epoch integer not null,
    until integer not null
) without rowid;

CREATE TABLE event_batch (
    lane integer not null,
    n integer not null,
    server blob not null,
    at integer not null,
    body text not null, rare integer,
    primary key (lane, n)
) without rowid;

CREATE TABLE event_lane (
    id integer primary key check (id = 1),
    latest integer not null
);

CREATE TABLE expiry (
    at integer not null,
    seq integer not null,
    primary key (at, seq)
) without rowid;

CREATE TABLE finished (
    seq integer primary key,
    state text not null,
    at integer not null,
    epoch integer not null,
    life integer not null,
    failures integer not null,
    losses integer not null,
    interruptions integer not null,
    isolated integer not null,
    attempt integer not null,
    shown integer not null,
    result text,
    error text,
    ended_by text not null
);

CREATE TABLE gate (
    id integer primary key,
    limit_name text not null,
    value text,
    in_flight integer not null,
    -- Until when the starts so far use up the rate, in microseconds since the Unix epoch.
    used_until integer not null
);

CREATE TABLE idempotency (
    key blob primary key,
    request blob not null,
    expires integer not null
) without rowid;

CREATE TABLE idempotency_job (
    seq integer primary key,
    key blob not null
);

CREATE TABLE job_row (
    seq integer primary key,
    id blob not null unique,
    class integer not null,
    priority integer not null,
    rules text,
    timeout_ms integer,
    visibility_ms integer,
    strand_ms integer,
    origin integer not null,
    created integer not null,
    scheduled_for integer,
    expires_at integer,
    -- Which of its class's lanes the job is in; it follows from its keys, a JSON object sorted by
    -- name. Without keys, both are null.
    lane integer,
    keys text,
    args text not null,
    meta text not null,
    extra text not null
);

CREATE TABLE limit_rule (
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

CREATE TABLE log (
    seq integer not null,
    id integer not null,
    epoch integer not null,
    n integer not null,
    stream integer not null,
    at integer not null,
    bytes blob not null,
    primary key (seq, id)
) without rowid;

CREATE TABLE log_size (
    seq integer not null,
    epoch integer not null,
    bytes integer not null,
    primary key (seq, epoch)
) without rowid;

CREATE TABLE meta (
    key text primary key,
    value text not null
) without rowid;

CREATE TABLE operation (
    id blob not null primary key,
    -- Rises with every step: what is written is what was read.
    revision integer not null,
    kind text not null,
    about text not null,
    definition text not null,
    made_by text not null,
    status text not null,
    -- Up to where jobs were looked at.
    reached text,
    -- The server process that goes on with it.
    runner blob,
    matched integer not null,
    changed integer not null,
    skipped text not null,
    note text not null,
    created integer not null,
    updated integer not null,
    ended integer
) without rowid;

CREATE TABLE queue (
    name text primary key,
    paused integer not null,
    settings text,
    set_by text,
    set_at integer
) without rowid;

CREATE TABLE queue_tally (
    queue text primary key,
    scheduled integer not null,
    available integer not null,
    pending integer not null,
    active integer not null,
    completed integer not null,
    retryable integer not null,
    cancelled integer not null,
    discarded integer not null,
    started integer not null,
    exhausted integer not null,
    abandoned integer not null
) without rowid;

CREATE TABLE ready (
    class integer not null,
    rank integer not null,
    seq integer not null,
    lane integer not null default 0,
    epoch integer not null,
    life integer not null,
    failures integer not null,
    losses integer not null,
    interruptions integer not null,
    since integer not null,
    strand_ms integer,
    primary key (class, rank, seq)
) without rowid;

CREATE TABLE ready_second (
    queue text not null,
    second integer not null,
    jobs integer not null,
    primary key (queue, second)
) without rowid;

CREATE TABLE schedule (
    name text not null primary key,
    -- Rises with every change and every fire: what is written is what was read.
    revision integer not null,
    configured integer not null,
    -- When a server must look at it next; none while it is paused or has ended.
    due integer,
    definition text not null,
    progress text not null,
    set_by text not null,
    created integer not null,
    updated integer not null
) without rowid;

CREATE TABLE tally (
    class integer primary key,
    scheduled integer not null,
    available integer not null,
    pending integer not null,
    active integer not null,
    completed integer not null,
    retryable integer not null,
    cancelled integer not null,
    discarded integer not null,
    started integer not null,
    exhausted integer not null,
    abandoned integer not null
);

CREATE TABLE transfer (
    export text primary key,
    section text not null,
    stored integer not null,
    done integer not null
) without rowid;

CREATE TABLE unique_key (
    fp blob primary key,
    seq integer not null
) without rowid;

CREATE TABLE waiting (
    seq integer primary key,
    state text not null,
    due integer,
    epoch integer not null,
    life integer not null,
    failures integer not null,
    losses integer not null,
    interruptions integer not null,
    isolated integer not null,
    since integer not null
);

CREATE TABLE worker (
    id text primary key,
    name text not null,
    worker_role text not null,
    status text not null,
    state text not null,
    last_heartbeat text,
    created text not null,
    updated text not null,
    phase integer not null,
    liveness integer not null,
    concurrency integer not null,
    queues text not null,
    runtimes text not null,
    labels text not null,
    renewal_seq integer not null,
    session_seq integer not null,
    -- The latest of its attachments, as counted by the worker.
    attachment integer not null default 0,
    lease_ms integer not null,
    lease_until_ms integer not null,
    last_heartbeat_ms integer not null,
    created_ms integer not null,
    updated_ms integer not null,
    evidence text not null,
    about text not null,
    plain_id text
, unhealthy text, unhealthy_since_ms integer, ordered text, ordered_ms integer, previous text, followed_by text, evidence_code text) without rowid;

CREATE TABLE worker_order (
    selector text primary key,
    -- quiet or drain.
    kind text not null,
    set_by text not null,
    set_at integer not null
) without rowid;

CREATE TABLE workflow (
    id blob not null primary key,
    -- Rises with every change: what is written is what was read.
    revision integer not null,
    status text not null,
    -- When a server must look at it next, whatever happens to its jobs.
    due integer,
    finished integer,
    name text not null,
    tenant text not null,
    -- The item of another workflow that started it.
    parent blob,
    parent_step integer,
    parent_item integer,
    parent_keeps integer,
    created integer not null,
    updated integer not null,
    progress text not null,
    definition text not null
) without rowid;

CREATE TABLE workflow_end (
    number integer primary key,
    workflow blob not null,
    step integer not null,
    item integer not null,
    keeps integer not null,
    job blob,
    child blob,
    what text not null,
    error text,
    result text,
    at integer not null
);

CREATE TABLE workflow_item (
    workflow blob not null,
    step integer not null,
    item integer not null,
    state text not null,
    job blob,
    child blob,
    input text,
    result text,
    primary key (workflow, step, item)
) without rowid;

CREATE TABLE workflow_step (
    workflow blob not null,
    step integer not null,
    state text not null,
    primary key (workflow, step)
) without rowid;

CREATE VIEW attempt as
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

CREATE VIEW dead_letter as
select
    j.id as job,
    j.queue as queue,
    j.type as type,
    d.reason as reason,
    strftime('%Y-%m-%dT%H:%M:%fZ', d.at / 1000.0, 'unixepoch') as at
from dead_letter_row d
join job j on j.seq = d.seq;

CREATE VIEW event as
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

CREATE VIEW gate_counted as
select g.value as id, count(*) as in_flight
from active a, json_each(a.gates) g
where a.gates is not null
group by g.value;

CREATE VIEW job as
select
    j.seq as seq,
    lower(substr(hex(j.id), 1, 8) || '-' || substr(hex(j.id), 9, 4) || '-' || substr(hex(j.id), 13, 4)
        || '-' || substr(hex(j.id), 17, 4) || '-' || substr(hex(j.id), 21)) as id,
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
    strftime('%Y-%m-%dT%H:%M:%fZ', j.created / 1000.0, 'unixepoch') as created,
    strftime('%Y-%m-%dT%H:%M:%fZ', f.at / 1000.0, 'unixepoch') as ended,
    j.keys as keys
from job_row j
join class c on c.id = j.class
left join finished f on f.seq = j.seq
left join active a on a.seq = j.seq
left join waiting w on w.seq = j.seq;

CREATE VIEW queue_tally_counted as
select c.queue as queue, sum(t.scheduled) as scheduled, sum(t.available) as available,
    sum(t.pending) as pending, sum(t.active) as active, sum(t.completed) as completed,
    sum(t.retryable) as retryable, sum(t.cancelled) as cancelled, sum(t.discarded) as discarded,
    sum(t.started) as started, sum(t.exhausted) as exhausted, sum(t.abandoned) as abandoned
from tally_counted t
join class c on c.id = t.class
group by c.queue;

CREATE VIEW ready_second_counted as
select c.queue as queue, r.since / 1000 as second, count(*) as jobs
from ready r
join class c on c.id = r.class
group by 1, 2;

CREATE VIEW tally_counted as
select
    class,
    coalesce(sum(n) filter (where what = 'scheduled'), 0) as scheduled,
    coalesce(sum(n) filter (where what = 'available'), 0) as available,
    coalesce(sum(n) filter (where what = 'pending'), 0) as pending,
    coalesce(sum(n) filter (where what = 'active'), 0) as active,
    coalesce(sum(n) filter (where what = 'completed'), 0) as completed,
    coalesce(sum(n) filter (where what = 'retryable'), 0) as retryable,
    coalesce(sum(n) filter (where what = 'cancelled'), 0) as cancelled,
    coalesce(sum(n) filter (where what = 'discarded'), 0) as discarded,
    coalesce(sum(n) filter (where what = 'started'), 0) as started,
    coalesce(sum(n) filter (where what = 'exhausted'), 0) as exhausted,
    coalesce(sum(n) filter (where what = 'abandoned'), 0) as abandoned
from (
    select class, 'available' as what, count(*) as n from ready group by class
    union all
    select j.class, 'active', count(*) from active a join job_row j on j.seq = a.seq
        where not a.cancelled group by j.class
    union all
    select j.class, 'started', count(*) from active a join job_row j on j.seq = a.seq
        where not a.cancelled and a.started is not null group by j.class
    union all
    select j.class, w.state, count(*) from waiting w join job_row j on j.seq = w.seq
        group by j.class, w.state
    union all
    select j.class, f.state, count(*) from finished f join job_row j on j.seq = f.seq
        group by j.class, f.state
    union all
    select j.class, case d.reason when 'exhausted' then 'exhausted' else 'abandoned' end, count(*)
        from dead_letter_row d join job_row j on j.seq = d.seq group by 1, 2
)
group by class;

