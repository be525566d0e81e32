//! Gates between servers: which rows claims by limits lock, what a session costs that holds one of
//! them, and what two servers give out together by rates and by shares.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_cluster::{Cluster, Database, Stop};
use outlast_core::gate::Rate;
use outlast_core::id::{JobId, WorkerId};
use outlast_core::keys::Keys;
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_core::queue::{Change, QueueChange, Weight};
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{
    LeadershipFence, LeadershipRequest, NewJob, RETENTION, Recount, ReportedOutcome, SetLimit,
    SetQueue,
};
use outlast_store::reply::{Claimed, Claims};
use outlast_store::store::ManualClock;
use outlast_store::{Command, Reply, Store as _, StoreError};
use outlast_store_postgres::Options;
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::hand::{
    Server, check_gates, check_places, finish, job, limit, number, of_tenant, per_tenant, renew,
    run, sql,
};
use crate::held::WAITING_COMMIT;

fn claims(reply: Reply) -> Claims {
    match reply {
        Reply::Claimed(Ok(claims)) => claims,
        other => panic!("nothing may be claimed: {other:?}"),
    }
}

fn tenant(claimed: &Claimed) -> String {
    claimed.job.keys.iter().map(|(_, value)| value.clone()).collect()
}

fn end(worker: WorkerId, claimed: &Claimed) -> Command {
    finish(worker, claimed.job.id, claimed.epoch, ReportedOutcome::Completed)
}

#[test]
fn claim_by_limits_locks_what_it_takes_and_leaves_the_rest_to_others() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let jobs = (0..100).map(|n| {
            let mut job = if n % 2 == 0 { of_tenant(&format!("t{}", n % 10)) } else { job() };
            job.class.job_type = format!("work-{}", n % 4);
            job
        });
        a.one(Command::EnqueueAll(jobs.collect())).await;
        a.apply(vec![per_tenant(3), limit("type", Scope::Type("work-1".into()), 4)]).await;
        let (here, there) = (a.worker().await, b.worker().await);
        let (claim, other) = (a.claiming(here, 10).await, b.claiming(there, 10).await);
        let (holder, client) = (sql(&database.url).await, sql(&database.url).await);
        client.batch_execute(WAITING_COMMIT).await.unwrap();
        holder.batch_execute("select pg_advisory_lock(77)").await.unwrap();
        let claiming = tokio::spawn(async move { claims(a.one(claim).await) });
        let waits = "select count(*) from pg_stat_activity where wait_event = 'advisory'";
        while number(&client, waits).await == 0 {}
        let free = "select count(*) from (select 1 from ready for update skip locked) x";
        assert_eq!(number(&client, free).await, 90);
        // The gates of the others are locked: what passes none is not.
        let claiming_there = tokio::spawn(async move { claims(b.one(other).await) });
        while number(&client, waits).await < 2 {}
        assert_eq!(number(&client, free).await, 80);
        holder.batch_execute("select pg_advisory_unlock(77)").await.unwrap();
        let (first, second) = (claiming.await.unwrap(), claiming_there.await.unwrap());
        assert_eq!((first.jobs.len(), second.jobs.len()), (10, 10));
        assert!(first.jobs.iter().any(|claimed| !claimed.job.keys.is_empty()), "{first:?}");
        check_places(&client).await;
        check_gates(&client).await;
    });
}

/// An operator forgot a transaction.
#[test]
fn session_that_holds_a_gate_stops_its_own_jobs_and_nothing_else() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let worker = server.worker().await;
        server.one(per_tenant(2)).await;
        let jobs = ["a", "a", "a", "b", "b"].map(of_tenant);
        server.one(Command::EnqueueAll(jobs.into())).await;
        // Both gates are there, and one attempt of each tenant runs.
        let claim = server.claiming(worker, 1).await;
        let running = claims(server.one(claim).await).jobs.remove(0);
        assert_eq!(tenant(&running), "a");
        server.add(2).await;
        let claim = server.claiming(worker, 10).await;
        let holder = sql(&database.url).await;
        holder
            .batch_execute("begin; select 1 from gate where value = 'a' for update")
            .await
            .unwrap();
        let before = server.store.tried_again().await;
        let taken = claims(server.try_apply(vec![claim.clone()]).await.unwrap().replies.remove(0));
        let mut of: BTreeMap<String, usize> = BTreeMap::new();
        for claimed in &taken.jobs {
            *of.entry(tenant(claimed)).or_default() += 1;
        }
        assert_eq!(of, BTreeMap::from([("b".into(), 2), (String::new(), 2)]));
        assert_eq!(taken.passed_over.len(), 1, "the class is to be looked at again: {taken:?}");
        // Heartbeats, ends of its own attempts too, and an audit that finds it wrong.
        let wrong = "insert into gate_held select id, gen_random_uuid(), 5 from gate
            where value = 'a'";
        sql(&database.url).await.batch_execute(wrong).await.unwrap();
        let gates = server.store.miscounted_gates(None, 10).await.unwrap();
        assert_eq!(gates.len(), 1);
        let recount = Command::Recount(Recount { leadership: leading(&server).await, gates });
        let commands = vec![renew(worker), end(worker, &running), recount.clone()];
        let replies = server.try_apply(commands).await.unwrap().replies;
        assert!(matches!(replies[0], Reply::Renewed(Ok(_))), "{replies:?}");
        assert!(matches!(replies[1], Reply::Moved(Ok(_))), "{replies:?}");
        assert_eq!(replies[2], Reply::Recounted(Ok(Vec::new())), "it is locked");
        assert_eq!(server.store.tried_again().await, before, "nothing waited");
        holder.batch_execute("rollback").await.unwrap();
        let Reply::Recounted(Ok(corrected)) = server.one(recount).await else { panic!() };
        assert_eq!((corrected[0].counted, corrected[0].held), (5, 0));
        let late = claims(server.one(claim).await);
        assert_eq!(late.jobs.iter().map(tenant).collect::<Vec<_>>(), ["a", "a"]);
        check_places(&holder).await;
        check_gates(&holder).await;
    });
}

/// A gate is deleted when nothing counts it. What is left of its counts by whatever bug is not in
/// the way of a gate that is made later with the same number.
#[test]
fn counts_of_a_gate_that_does_not_exist_are_found_and_removed() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let worker = server.worker().await;
        server.one(per_tenant(1)).await;
        let jobs = ["a", "b", "c", "d"].map(of_tenant);
        server.one(Command::EnqueueAll(jobs.into())).await;
        let claim = server.claiming(worker, 10).await;
        let running = claims(server.one(claim.clone()).await).jobs;
        let client = sql(&database.url).await;
        // One attempt goes on, one ends unseen, one was never counted, and one is right.
        let wrong = "delete from gate where value in ('a', 'b', 'c');
            insert into gate_held select k, gen_random_uuid(), 5 from unnest(array[7, 8]) k;
            update active set gates = null where seq = (
                select j.seq from job_row j where j.keys like '%\"b\"%');
            delete from gate_held where gate = (
                select gates[1] from active a join job_row j on j.seq = a.seq
                where j.keys like '%\"c\"%')";
        client.batch_execute(wrong).await.unwrap();
        let suspects = server.store.miscounted_gates(None, 10).await.unwrap();
        assert_eq!(suspects.len(), 4, "7, 8, b and c: {suspects:?}");
        let leadership = leading(&server).await;
        let gates = suspects.clone();
        let recount = Command::Recount(Recount { leadership, gates });
        // A claim that is making one keeps it.
        let holder = sql(&database.url).await;
        let making = "begin; select pg_advisory_xact_lock(7104877, 7)";
        holder.batch_execute(making).await.unwrap();
        let corrected = |reply| match reply {
            Reply::Recounted(Ok(corrected)) => corrected,
            other => panic!("it leads: {other:?}"),
        };
        let first = corrected(server.one(recount.clone()).await);
        assert_eq!(first.len(), 3, "{first:?}");
        assert!(first.iter().all(|of| of.limit.is_none() && of.value.is_none()), "{first:?}");
        holder.batch_execute("rollback").await.unwrap();
        let second = corrected(server.one(recount.clone()).await);
        assert_eq!(second.iter().map(|of| of.gate.0).collect::<Vec<_>>(), [7]);
        assert_eq!(corrected(server.one(recount).await), []);
        assert_eq!(server.store.miscounted_gates(None, 10).await.unwrap(), []);
        // All goes on; another server remembers nothing of these attempts.
        let server = Server::open(&database.url).await;
        let ends = running.iter().map(|claimed| end(worker, claimed)).collect();
        server.apply(ends).await;
        assert_eq!(server.store.miscounted_gates(None, 10).await.unwrap(), []);
        let sum = "select coalesce(sum(n), 0)::bigint from gate_held";
        assert_eq!(number(&client, sum).await, 0);
        server.one(Command::EnqueueAll(["a", "a", "b", "c"].map(of_tenant).into())).await;
        assert_eq!(claims(server.one(claim).await).jobs.len(), 3);
        check_gates(&client).await;
    });
}

async fn leading(server: &Server) -> LeadershipFence {
    let (name, holder) = (RETENTION.to_owned(), server.id);
    let hold = Some(Span::from_secs(60));
    match server
        .one(Command::Leadership(LeadershipRequest { name: name.clone(), holder, hold }))
        .await
    {
        Reply::Leadership(Ok(leading)) => LeadershipFence { name, holder, epoch: leading.epoch },
        other => panic!("another server leads: {other:?}"),
    }
}

/// Notes when each transaction that starts jobs by a rate has passed the gate, under its lock.
const NOTING: &str = "
    create table public.passed (n bigint generated always as identity, at bigint, tx xid);
    create function public.note() returns trigger language plpgsql as $$
    begin
        insert into public.passed (at, tx) values
            ((extract(epoch from clock_timestamp()) * 1000000)::bigint,
             pg_current_xact_id()::xid);
        return null;
    end $$;
    create trigger note after update of used_until on gate
        for each row execute function public.note()";

/// When each transaction passed the gate, and how many it started.
async fn passed(client: &Client) -> Vec<(i64, i64)> {
    let sql = "select min(p.at), (select count(*) from active a where a.xmin = p.tx)
               from public.passed p group by p.tx order by min(p.n)";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Claims for as long as it lasts, whatever fails.
async fn claim_until(server: Server, worker: WorkerId, claim: Command, end: Instant) -> Server {
    while Instant::now() < end {
        match server.try_apply(vec![claim.clone(), renew(worker)]).await {
            Ok(_) | Err(StoreError::Unavailable(_) | StoreError::Ambiguous(_)) => {}
            Err(other) => panic!("{other}"),
        }
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    server
}

/// The times are those of the clock that counts the rate: how fast this machine is says nothing.
#[test]
fn rate_holds_in_every_window_of_two_servers_and_an_outage_saves_nothing_up() {
    const STARTS: i64 = 20;
    const PERIOD_US: i64 = 1_000_000;
    let mut cluster = Cluster::start(&[]).unwrap();
    let url = cluster.create_database().unwrap();
    run(async {
        let options = Options { unsafe_no_fsync: true, ..Options::default() };
        let first = Server::with(&url, &options).await;
        let rate = Rate::new(20, Span(1_000));
        let (name, scope) = (LimitName::new("rate").unwrap(), Scope::Type("work".into()));
        let limit = Limit { name, scope, concurrency: None, rate };
        let by = "operator".into();
        first.one(Command::SetLimit(Box::new(SetLimit { limit, configured: false, by }))).await;
        first.add(300).await;
        sql(&url).await.batch_execute(NOTING).await.unwrap();
        let mut servers = vec![first, Server::with(&url, &options).await];
        for outage in [true, false] {
            let last = Instant::now() + Duration::from_millis(2_500);
            let mut claiming = Vec::new();
            for server in servers.drain(..) {
                let worker = server.worker().await;
                let claim = server.claiming(worker, 7).await;
                claiming.push(tokio::spawn(claim_until(server, worker, claim, last)));
            }
            if outage {
                tokio::time::sleep(Duration::from_millis(1_000)).await;
                tokio::task::block_in_place(|| cluster.stop(Stop::Immediate).unwrap());
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                tokio::task::block_in_place(|| cluster.start_again().unwrap());
            }
            for claiming in claiming {
                servers.push(claiming.await.unwrap());
            }
            // Connections are there again.
            servers[0].add(1).await;
            servers[1].add(1).await;
        }
        let client = sql(&url).await;
        let passed = passed(&client).await;
        let started: i64 = passed.iter().map(|(_, count)| count).sum();
        assert_eq!(started, number(&client, "select count(*) from active").await);
        assert!(started > 2 * STARTS, "only {started} started");
        for (n, window) in (1..passed.len()).map(|n| (n, &passed[n..])) {
            let mut sum = 0;
            for (at, count) in window {
                sum += count;
                // A transaction decides after the one before it has passed.
                let took = at - passed[n - 1].0;
                assert!(sum <= STARTS || took >= PERIOD_US, "{sum} started in {took} µs");
            }
        }
        check_gates(&client).await;
    });
}

fn of_share(tenant: &str, priority: i8) -> NewJob {
    let keys = Keys::new([("tenant".into(), tenant.into())].into()).unwrap();
    NewJob { keys, priority, ..job() }
}

/// Each server has two slots, fewer than there are shares: what one claim gives counts in the next.
#[test]
fn two_servers_share_a_fair_queue_by_weight_and_priority_goes_first() {
    const SLOTS: u32 = 2;
    const TURNS: usize = 160;
    let database = Database::new().unwrap();
    run(async {
        let clock = ManualClock::at(Timestamp(1_800_000_000_000));
        let options = Options { unsafe_no_fsync: true, clock: Some(Arc::new(clock.clone())) };
        let servers = [
            Server::with(&database.url, &options).await,
            Server::with(&database.url, &options).await,
        ];
        let (key, value) = ("tenant".to_owned(), "c".to_owned());
        let change = QueueChange {
            fair_by: Change::Set(key.clone()),
            weights: vec![Weight { key, value, weight: 3 }],
            ..QueueChange::default()
        };
        let (queue, by) = ("default".into(), "operator".into());
        servers[0].one(Command::SetQueue(Box::new(SetQueue { queue, change, by }))).await;
        let many = |tenant: &'static str, count| (0..count).map(move |_| of_share(tenant, 0));
        let jobs = many("a", 400).chain(many("b", 400)).chain(many("c", 400));
        let urgent = (0..20).map(|_| of_share("a", 5));
        servers[0].one(Command::EnqueueAll(jobs.chain(urgent).collect())).await;
        let mut hands = Vec::new();
        for server in &servers {
            let worker = server.worker().await;
            let claim = server.claiming(worker, SLOTS).await;
            hands.push((server, worker, claim, Vec::<Claimed>::new()));
        }
        let mut order: Vec<(JobId, String, i8)> = Vec::new();
        for _ in 0..TURNS {
            for (server, worker, claim, running) in &mut hands {
                let ends: Vec<Command> =
                    running.drain(..).map(|claimed| end(*worker, &claimed)).collect();
                if !ends.is_empty() {
                    server.apply(ends).await;
                }
                let claimed = claims(server.one(claim.clone()).await).jobs;
                assert_eq!(claimed.len(), 2);
                order.extend(claimed.iter().map(|it| (it.job.id, tenant(it), it.job.priority)));
                running.extend(claimed);
                server.one(renew(*worker)).await;
            }
            clock.advance(100);
        }
        let (urgent, others) = order.split_at(20);
        assert!(urgent.iter().all(|(_, _, priority)| *priority == 5), "{urgent:?}");
        assert!(others.iter().all(|(_, _, priority)| *priority == 0));
        // Until tenant c has no more jobs.
        let shared = &others[..600];
        let count = |of: &str| shared.iter().filter(|(_, tenant, _)| tenant == of).count();
        let counts = ["a", "b", "c"].map(count);
        let within = |count: usize, wanted: usize| count.abs_diff(wanted) * 10 <= wanted;
        assert!(within(counts[2], 360), "{counts:?}");
        assert!(counts[0].abs_diff(counts[1]) <= 30, "{counts:?}");
        check_places(&sql(&database.url).await).await;
    });
}
