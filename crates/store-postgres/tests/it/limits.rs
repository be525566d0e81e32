//! Limits that several servers keep to.

use std::time::Duration;

use outlast_cluster::Database;
use outlast_core::gate::Rate;
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_core::queue::{Change, QueueChange};
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{
    Claim, LeadershipFence, LeadershipRequest, NewJob, Prune, RETENTION, ReportedOutcome, SetLimit,
    SetQueue,
};
use outlast_store::reply::Claims;
use outlast_store::{Command, Reply};
use tokio::time::Instant;

use crate::hand::{
    Server, check_gates, check_places, finish, job, limit, number, of_tenant, per_tenant, run, sql,
};
use crate::held::WAITING_COMMIT;

fn claims(reply: Reply) -> Claims {
    match reply {
        Reply::Claimed(Ok(claims)) => claims,
        other => panic!("nothing may be claimed: {other:?}"),
    }
}

/// The version of limits that were never committed is given out again.
#[test]
fn limits_of_a_batch_that_was_rolled_back_are_forgotten() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let (worker, client) = (a.worker().await, sql(&database.url).await);
        let jobs = (0..4).map(|_| of_tenant("a")).collect();
        a.one(Command::EnqueueAll(jobs)).await;
        let claim = a.claiming(worker, 4).await;
        // As if its last command had failed.
        let refuse = "
            create function public.refuse() returns trigger language plpgsql as
                $$ begin raise exception 'refused'; end $$;
            create constraint trigger refuse after insert on active deferrable initially deferred
                for each row execute function public.refuse()";
        client.batch_execute(refuse).await.unwrap();
        let tried = a.try_apply(vec![per_tenant(3), claim.clone()]).await;
        assert!(tried.is_err(), "{tried:?}");
        client.batch_execute("drop trigger refuse on active").await.unwrap();
        assert_eq!(number(&client, "select n from limit_version").await, 0);
        b.one(per_tenant(1)).await;
        assert_eq!(claims(a.one(claim).await).jobs.len(), 1);
    });
}

/// Where no limit applies, claims ahead of free slots are no others: what one statement took would
/// take two.
#[test]
fn claims_ahead_of_free_slots_join_others_of_classes_without_a_limit() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::with_clock(&database.url).await;
        let worker = server.worker().await;
        server.add(40).await;
        let claim = server.claiming(worker, 2).await;
        let Command::Claim(ahead) = claim.clone() else { panic!("{claim:?}") };
        let ahead = Command::Claim(Claim { is_prefetch: true, ..ahead });
        let elsewhere = limit("other", Scope::Queue("other".into()), 1);
        for changes in [vec![], vec![elsewhere]] {
            server.apply(changes).await;
            server.apply(vec![claim.clone(), claim.clone()]).await;
            let alike = server.statements_of(vec![claim.clone(), claim.clone()]).await;
            assert_eq!(server.statements_of(vec![claim.clone(), ahead.clone()]).await, alike);
        }
        // Where a rate does, they get nothing: its jobs would start later.
        let (name, scope) = (LimitName::new("rate").unwrap(), Scope::Queue("default".into()));
        let rate = Rate::new(1_000, Span::from_secs(1));
        let limit = Limit { name, scope, concurrency: None, rate };
        let set = SetLimit { limit, configured: false, by: "operator".into() };
        server.one(Command::SetLimit(Box::new(set))).await;
        let replies = server.apply(vec![claim.clone(), ahead, claim]).await;
        let got: Vec<usize> = replies.into_iter().map(|it| claims(it).jobs.len()).collect();
        assert_eq!(got, [2, 0, 2]);
    });
}

/// A claim once waited for another server that made the same gate, and two of them for each other.
#[test]
fn claim_waits_for_no_gate_that_another_server_is_making() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let (here, there) = (a.worker().await, b.worker().await);
        a.one(per_tenant(5)).await;
        a.one(Command::EnqueueAll((0..4).map(|_| of_tenant("a")).collect())).await;
        let (claim, other) = (a.claiming(here, 1).await, b.claiming(there, 1).await);
        let (holder, client) = (sql(&database.url).await, sql(&database.url).await);
        client.batch_execute(WAITING_COMMIT).await.unwrap();
        holder.batch_execute("select pg_advisory_lock(77)").await.unwrap();
        let claiming = tokio::spawn(async move { a.one(claim).await });
        let waits = "select count(*) from pg_stat_activity where wait_event = 'advisory'";
        while number(&client, waits).await == 0 {}
        let began = Instant::now();
        let busy = claims(b.try_apply(vec![other]).await.unwrap().replies.remove(0));
        let took = began.elapsed();
        assert!(took < Duration::from_millis(400), "as long as it may wait for a lock: {took:?}");
        assert_eq!((busy.jobs.len(), busy.passed_over.len()), (0, 1));
        holder.batch_execute("select pg_advisory_unlock(77)").await.unwrap();
        assert_eq!(claims(claiming.await.unwrap()).jobs.len(), 1);
        check_places(&client).await;
    });
}

/// Whatever servers do at the same time, a gate counts the attempts that hold it, and they are
/// never more than its limit.
#[test]
fn servers_together_keep_to_limits_and_count_right() {
    const JOBS: usize = 400;
    const TENANTS: usize = 60;
    let database = Database::new().unwrap();
    run(async {
        let first = Server::open(&database.url).await;
        first.apply(vec![per_tenant(2), limit("all", Scope::Queue("default".into()), 40)]).await;
        let jobs = (0..JOBS).map(|n| of_tenant(&format!("t{}", n % TENANTS))).collect();
        first.one(Command::EnqueueAll(jobs)).await;
        let work = |url: String| async move {
            let server = Server::open(&url).await;
            let worker = server.worker().await;
            let claim = server.claiming(worker, 9).await;
            let (mut running, mut done) = (Vec::new(), 0);
            let end = Instant::now() + Duration::from_secs(20);
            while Instant::now() < end {
                let claimed = claims(server.one(claim.clone()).await);
                let is_over = claimed.jobs.is_empty()
                    && claimed.passed_over.is_empty()
                    && claimed.blocked.is_empty();
                running.extend(claimed.jobs);
                if is_over && running.is_empty() {
                    break;
                }
                // It keeps some from claim to claim.
                let ended = running.split_off(running.len() / 2);
                done += ended.len();
                let ends = ended.into_iter().map(|ended| {
                    finish(worker, ended.job.id, ended.epoch, ReportedOutcome::Completed)
                });
                server.apply(ends.collect()).await;
            }
            done
        };
        let working: Vec<_> = (0..3).map(|_| tokio::spawn(work(database.url.clone()))).collect();
        let client = sql(&database.url).await;
        let too_many = "select count(*) from (
                select g.id from active a cross join lateral unnest(a.gates) g(id)
                    join gate on gate.id = g.id
                group by g.id, gate.limit_name
                having count(*) > case gate.limit_name when 'all' then 40 else 2 end) x";
        while working.iter().any(|working| !working.is_finished()) {
            assert_eq!(number(&client, too_many).await, 0);
        }
        let mut done = 0;
        for working in working {
            done += working.await.unwrap();
        }
        assert_eq!(done, JOBS);
        check_gates(&client).await;
        check_places(&client).await;
    });
}

/// One server counts the starts, the other the ends.
#[test]
fn gates_of_attempts_that_end_at_another_server_are_forgotten() {
    const TENANTS: usize = 50;
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let (worker, client) = (a.worker().await, sql(&database.url).await);
        a.one(per_tenant(1)).await;
        let jobs = (0..=TENANTS).map(|n| of_tenant(&format!("t{n}"))).collect();
        a.one(Command::EnqueueAll(jobs)).await;
        let mut claimed = a.claim(worker, 100).await;
        let running = claimed.remove(7);
        let ends = claimed
            .iter()
            .map(|ended| finish(worker, ended.job.id, ended.epoch, ReportedOutcome::Completed));
        b.apply(ends.collect()).await;
        assert_eq!(number(&client, "select count(*) from gate_held").await, 101);
        let hold = Some(Span::from_secs(60));
        let leading = LeadershipRequest { name: RETENTION.to_owned(), holder: b.id, hold };
        let Reply::Leadership(Ok(leading)) = b.one(Command::Leadership(leading)).await else {
            panic!("another server leads")
        };
        let leadership =
            LeadershipFence { name: RETENTION.to_owned(), holder: b.id, epoch: leading.epoch };
        let prune = Prune {
            leadership,
            finished_before: Timestamp(0),
            workers_before: Timestamp(0),
            limit: 100,
            from_start: true,
        };
        b.one(Command::Prune(prune)).await;
        assert_eq!(number(&client, "select count(*) from gate").await, 1);
        assert_eq!(number(&client, "select sum(n)::bigint from gate_held").await, 1);
        let end = finish(worker, running.job.id, running.epoch, ReportedOutcome::Completed);
        b.one(end).await;
        assert_eq!(number(&client, "select sum(n)::bigint from gate_held").await, 0);
    });
}

/// One fair queue once made every claim that may take from it walk through lanes.
#[test]
fn jobs_that_go_before_those_of_a_fair_queue_are_claimed_without_a_look_at_its_lanes() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::with_clock(&database.url).await;
        let worker = server.worker().await;
        let in_fair = |mut job: NewJob| {
            job.class.queue = "fair".into();
            job
        };
        let shared = ["a", "a", "b"].map(|tenant| in_fair(of_tenant(tenant)));
        let plain = (0..13).map(|_| job());
        let mut jobs: Vec<NewJob> = plain.collect();
        jobs.splice(12..12, shared);
        server.one(Command::EnqueueAll(jobs)).await;
        let claim = server.claiming(worker, 3).await;
        server.one(claim.clone()).await;
        let without = server.statements_of(vec![claim.clone()]).await;
        let change =
            QueueChange { fair_by: Change::Set("tenant".into()), ..QueueChange::default() };
        let (queue, by) = ("fair".into(), "operator".into());
        server.one(Command::SetQueue(Box::new(SetQueue { queue, change, by }))).await;
        // It reads the settings.
        server.one(claim.clone()).await;
        // The version of the limits, and the first jobs.
        assert_eq!(server.statements_of(vec![claim.clone()]).await, without + 2);
        // And again the version, open classes, lanes of the first jobs, others, the jobs of these.
        assert_eq!(server.statements_of(vec![claim.clone()]).await, without + 7);
        let last = claims(server.one(claim).await);
        assert_eq!((last.jobs.len(), last.passed_over), (1, vec![]));
        assert_eq!(last.jobs[0].job.key.queue, "default");
    });
}
