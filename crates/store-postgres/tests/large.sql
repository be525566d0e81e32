-- A large store, by the set: FINISHED jobs that have ended, SCHEDULED ones, a claimable one for
-- each 200 that have ended, all older than these, and WORKERS with one attempt each. One in
-- 100 ended jobs is of the queue `mail`, one in 20,000 of `rare`; one in 1,000 was discarded,
-- one cancelled. Five times as many workers went.
insert into class (id, queue, job_type, route, tenant, isolated, plain) values
    (1, 'default', 'noop', '', '', false, true), (2, 'default', 'echo', '', '', false, true),
    (3, 'mail', 'send', '', 'acme', false, true), (4, 'rare', 'once', '', '', false, true);
insert into class (id, queue, job_type, route, tenant, isolated, plain)
    select 100 + g, 'many', 'type-' || g, '', '', false, true from generate_series(1, 5000) g;
create temp table place (g bigint primary key, what text not null);
insert into place
    select g, case when g <= FINISHED / 200 then 'ready'
                   when g <= FINISHED / 200 + FINISHED then 'finished'
                   when g <= FINISHED / 200 + FINISHED + SCHEDULED then 'scheduled'
                   else 'active' end
    from generate_series(1, FINISHED / 200 + FINISHED + SCHEDULED + WORKERS) g;
analyze place;
insert into job_row (seq, id, class, priority, origin, created, args, meta, extra)
    select g, ('0190' || lpad(to_hex(g), 28, '0'))::uuid,
        case when g % 20000 = 7 then 4 when g % 100 = 1 then 3 when g % 10 = 2 then 2
             when g % 1000 = 3 then 101 + g / 1000 % 5000 else 1 end,
        g % 3, 1, 1700000000000 + g, '[{"message":"hello"}]', '', '' from place;
insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions, since, strand_ms)
    select j.class, -2 * (p.g % 3), p.g, 0, 1, 0, 0, 0, 1700000000000 + p.g, null
    from place p join job_row j on j.seq = p.g where p.what = 'ready';
insert into finished (seq, state, at, epoch, life, failures, losses, interruptions, isolated,
                      attempt, shown, result, error, ended_by)
    select g, case g % 1000 when 500 then 'discarded' when 501 then 'cancelled' else 'completed' end,
        1700000000000 + g, 1, 1, 0, 0, 0, false, 1, true, '{"ok":true}', null, ''
    from place where what = 'finished';
insert into attempt_row (seq, epoch, life, number, worker, claimed, finished, outcome, next_state,
                         by, evidence)
    select g, 1, 1, 1, ('0191' || lpad(to_hex(g % WORKERS), 28, '0'))::uuid, 1700000000000 + g,
        1700000000000 + g,
        case when g % 1000 <> 500 then 'completed' when g % 3000 = 500 then 'timeout'
             else 'failed' end,
        case g % 1000 when 500 then 'discarded' when 501 then 'cancelled' else 'completed' end,
        'worker', '' from place where what = 'finished';
insert into dead_letter_row (seq, reason, at)
    select g, case when g % 10000 = 500 then 'poison_suspect' else 'exhausted' end,
        1700000000000 + g from place where what = 'finished' and g % 2000 = 500;
insert into waiting (seq, state, due, epoch, life, failures, losses, interruptions, isolated, since)
    select g, case g % 100 when 7 then 'retryable' else 'scheduled' end, 4000000000000 + g, 0, 1, 0,
        0, 0, false, 1700000000000 + g from place where what = 'scheduled';
insert into active (seq, epoch, life, failures, losses, interruptions, isolated, worker, claimed,
                    started, cancelled)
    select g, 1, 1, 0, 0, 0, false, ('0191' || lpad(to_hex(g % WORKERS), 28, '0'))::uuid, 1700000000000 + g,
        case g % 2 when 0 then 1700000000000 + g end, false from place where what = 'active';
insert into worker (id, name, worker_role, status, state, phase, liveness, concurrency, queues,
        runtimes, labels, renewal_seq, session_seq, attachment, lease_ms, lease_until_ms,
        last_heartbeat_ms, created_ms, updated_ms, evidence, about)
    select ('0191' || lpad(to_hex(g), 28, '0'))::uuid, 'worker-' || g, 'sdk',
        case when g < WORKERS then 'active' else 'inactive' end,
        case when g < WORKERS then 'running' else 'lapsed' end, 0,
        case when g < WORKERS then 0 else 2 end, 10, '["default"]', '[]', '{}', 1, 1, 1,
        4000000000000, 9000000000000, 1700000000000 + g, 1700000000000 + g, 1700000000000 + g,
        'registered', '{}' from generate_series(0, 6 * WORKERS - 1) g;
insert into event_batch (server, lane, n, at, body, rare)
    select '01900000-0000-7000-8000-000000000000', 1, g, 1700000000000 + g,
        replace('[#,#,#,#,#]', '#', '{"t":1700000000000,"k":"job.completed",'
            || '"j":"01900000-0000-7000-8000-000000000000","q":"default","by":"worker","ev":"done"}'),
        case when g % 1000 = 0 then 2 else 0 end
    from generate_series(1, 100000) g;
drop table place;
truncate class_block;
insert into class_block select distinct class, seq >> 10, 0 from job_row;
select outlast.count_tally();
select setval('job_seq', (select max(seq) from job_row));
analyze;
