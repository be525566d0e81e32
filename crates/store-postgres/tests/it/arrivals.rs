//! Jobs that programs store by SQL: there if and only if the program's transaction commits,
//! enqueued by one server, and without effect on others until then.

use std::collections::HashSet;
use std::time::Duration;

use outlast_cluster::Database;
use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::queue::{Change, QueueChange};
use outlast_core::time::{Span, Timestamp};
use outlast_store::arrival::{Arrival, ArrivalState, ArrivedJob, EnqueueArrived, EnqueuedArrived};
use outlast_store::command::{First, JobAction, NewJob, Payload, SetQueue};
use outlast_store::event::{EventName, EventQuery};
use outlast_store::reply::EnqueueRefusal;
use outlast_store::signal::{Heard, Signal};
use outlast_store::{Command, Reply, Store as _};
use outlast_store_postgres::{OpenError, Options, PostgresSource};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{Client, Error};
use uuid::Uuid;

use crate::hand::{Server, check_places, enqueue, job, number, order, run, sql};

/// Plans what the tests ask for: a queue, a time, or to be refused.
fn plan(arrival: &Arrival) -> ArrivedJob {
    let sent: serde_json::Value = serde_json::from_str(&arrival.envelope).unwrap();
    let base = job();
    let mut class = base.class.clone();
    class.job_type = sent["type"].as_str().unwrap().to_owned();
    let first = match sent["options"]["scheduled_at"].as_str() {
        Some(_) => First::At(Timestamp(4_102_444_800_000)),
        None => First::Now,
    };
    let payload = Payload { args: sent["args"].to_string(), ..Payload::default() };
    let refused = class.job_type.starts_with("refused").then(|| r#"{"type":"no"}"#.to_owned());
    let job = NewJob { id: arrival.id, class, first, payload, ..base };
    ArrivedJob { number: arrival.number, job, refused }
}

/// What a server does: it reads the first arrivals, and plans their jobs.
pub(crate) async fn planned(server: &Server, limit: u32, watch: Option<Span>) -> EnqueueArrived {
    let page = server.store.arrivals(None, limit).await.unwrap();
    EnqueueArrived { jobs: page.iter().map(plan).collect(), wait: false, watch }
}

async fn put_in(server: &Server, order: EnqueueArrived) -> EnqueuedArrived {
    match server.one(Command::EnqueueArrived(order)).await {
        Reply::EnqueuedArrived(done) => done,
        other => panic!("not of arrivals: {other:?}"),
    }
}

pub(crate) async fn taken(server: &Server, limit: u32) -> EnqueuedArrived {
    put_in(server, planned(server, limit, None).await).await
}

/// Enqueues arrivals in each way that there is, and returns the statements that did it. The reads
/// of arrivals are asked too.
pub(crate) async fn enqueue_both_ways(url: &str) -> (Vec<&'static str>, Vec<String>) {
    let (server, program) = (Server::open(url).await, sql(url).await);
    for wait in [false, true] {
        let id = put(&program, "'work'").await.unwrap();
        let order = planned(&server, 10, Some(Span(60_000))).await;
        let done = put_in(&server, EnqueueArrived { wait, ..order }).await;
        assert_eq!((ids(&done), state(&server, id).await), (vec![id], ArrivalState::Enqueued));
    }
    let (writes, reads) =
        (server.store.writer_statements().await, server.store.reader_statements());
    let written = |part: &str| writes.iter().filter(|sql| sql.contains(part)).count();
    assert_eq!(written("join arrival a on"), 2, "{writes:#?}");
    assert_eq!(written("update arrival_watch"), 1, "{writes:#?}");
    let read = |part: &str| reads.iter().filter(|sql| sql.contains(part)).count();
    assert_eq!((read("from arrival where n >"), read("left join arrival a")), (1, 1), "{reads:#?}");
    (writes, reads)
}

pub(crate) fn ids(done: &EnqueuedArrived) -> Vec<JobId> {
    done.jobs.iter().map(|job| job.id).collect()
}

/// A program's transaction has decided that the job is there.
#[test]
fn job_that_a_program_stored_is_taken_into_a_full_queue_and_counts() {
    let database = Database::new().unwrap();
    run(async {
        let (server, program) = (Server::open(&database.url).await, sql(&database.url).await);
        let max_depth = Change::Set(1);
        let change = QueueChange { max_depth, ..QueueChange::default() };
        let (queue, by) = ("default".to_owned(), "operator".to_owned());
        server.one(Command::SetQueue(Box::new(SetQueue { queue, change, by }))).await;
        let stored = put(&program, "'work'").await.unwrap();
        // It does not count until a server has taken it in.
        assert!(matches!(server.one(enqueue(job())).await, Reply::Enqueued(Ok(_))));
        assert_eq!(ids(&taken(&server, 10).await), [stored]);
        let refused = server.one(enqueue(job())).await;
        let Reply::Enqueued(Err(EnqueueRefusal::QueueFull { depth, .. })) = refused else {
            panic!("not refused: {refused:?}");
        };
        assert_eq!((depth.jobs, depth.max), (2, 1));
        check_places(&program).await;
    });
}

async fn some_wait(server: &Server) -> bool {
    !server.store.arrivals(None, 1).await.unwrap().is_empty()
}

async fn state(server: &Server, id: JobId) -> ArrivalState {
    server.store.arrival(id).await.unwrap()
}

/// Calls the function with these arguments.
pub(crate) async fn put(client: &Client, arguments: &str) -> Result<JobId, Error> {
    let row = client.query_one(&format!("select outlast.enqueue({arguments})"), &[]).await?;
    Ok(JobId(row.get(0)))
}

async fn refusal(client: &Client, call: &str) -> (String, String) {
    let error = client.query(&format!("select outlast.{call}"), &[]).await.unwrap_err();
    let said = error.as_db_error().unwrap_or_else(|| panic!("{call}: {error}"));
    (said.code().code().to_owned(), said.message().to_owned())
}

#[test]
fn job_is_there_if_and_only_if_its_transaction_commits_savepoints_included() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let mut program = sql(&database.url).await;
        let gone = program.transaction().await.unwrap();
        gone.query_one("select outlast.enqueue('work')", &[]).await.unwrap();
        gone.rollback().await.unwrap();
        assert!(!some_wait(&server).await);

        let mut kept = program.transaction().await.unwrap();
        let first = put(kept.client(), "'work', '[1]'").await.unwrap();
        let part = kept.savepoint("part").await.unwrap();
        put(part.client(), "'work', '[2]'").await.unwrap();
        part.rollback().await.unwrap();
        assert_eq!(ids(&taken(&server, 10).await), [], "it is not committed");
        assert_eq!(state(&server, first).await, ArrivalState::Unknown);
        kept.commit().await.unwrap();

        assert!(matches!(state(&server, first).await, ArrivalState::Waiting(_)));
        assert_eq!(ids(&taken(&server, 10).await), [first]);
        let record = server.store.job(first).await.unwrap().unwrap();
        assert_eq!((record.state, record.job.payload.args.as_str()), (State::Available, "[1]"));
        assert!(!some_wait(&server).await);
        assert_eq!(state(&server, first).await, ArrivalState::Enqueued);
        check_places(&sql(&database.url).await).await;
    });
}

#[test]
fn servers_that_race_enqueue_each_arrival_once_and_make_its_new_class_once() {
    const JOBS: usize = 400;
    let database = Database::new().unwrap();
    run(async {
        let first = Server::open(&database.url).await;
        let program = sql(&database.url).await;
        let call = format!(
            "select outlast.enqueue_all(jsonb_agg(jsonb_build_object(
                 'type', 'new-' || g % 7, 'args', jsonb_build_array(g)) order by g))
             from generate_series(1, {JOBS}) g"
        );
        let rows = program.query(&call, &[]).await.unwrap();
        let given: HashSet<JobId> = rows.iter().map(|row| JobId(row.get(0))).collect();
        let racing: Vec<_> = (0..3)
            .map(|_| {
                let url = database.url.clone();
                tokio::spawn(async move {
                    let server = Server::open(&url).await;
                    let mut all = Vec::new();
                    while some_wait(&server).await {
                        all.extend(ids(&taken(&server, 16).await));
                    }
                    all
                })
            })
            .collect();
        let mut all = Vec::new();
        for racer in racing {
            all.extend(racer.await.unwrap());
        }
        let different: HashSet<JobId> = all.iter().copied().collect();
        assert_eq!((all.len(), &different), (JOBS, &given));
        let classes = first.store.backlog().await.unwrap();
        assert_eq!(classes.len(), 7);
        let client = sql(&database.url).await;
        assert_eq!(number(&client, "select max(id) from class").await, 7, "no gaps");
        check_places(&client).await;
    });
}

/// Each of them reads and plans before it knows of the others, and may die in between.
#[test]
fn job_that_was_planned_twice_is_stored_once_and_one_whose_planner_died_is_not_lost() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let program = sql(&database.url).await;
        let first = put(&program, "'work'").await.unwrap();
        let died = planned(&a, 10, None).await;
        assert_eq!(died.jobs.len(), 1);
        drop(died);
        let (by_a, by_b) = (planned(&a, 10, None).await, planned(&b, 10, None).await);
        let (by_a, by_b) = tokio::join!(put_in(&a, by_a), put_in(&b, by_b.clone()));
        assert_eq!([ids(&by_a), ids(&by_b)].concat(), [first]);
        assert_eq!([by_a.known, by_b.known].concat(), [], "it was gone, not dropped");

        // The same id again, once the job is forgotten: not what was planned is stored.
        let second = put(&program, "'other'").await.unwrap();
        let late = planned(&a, 10, None).await;
        let forget = format!("delete from arrival where id = '{second}'");
        program.batch_execute(&forget).await.unwrap();
        put(&program, &format!("'new', id => '{second}'")).await.unwrap();
        assert_eq!(put_in(&a, late).await, EnqueuedArrived { tried: 1, ..Default::default() });
        assert_eq!(ids(&taken(&b, 10).await), [second]);
        let record = b.store.job(second).await.unwrap().unwrap();
        assert_eq!(record.job.key.job_type, "new");
        let logged = "select count(*) from event where type = 'job.enqueued'";
        assert_eq!(number(&program, logged).await, 2);
        check_places(&program).await;
    });
}

#[test]
fn locked_arrival_is_left_in_place_and_whoever_wants_that_one_waits_for_it() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let (open, program) = (sql(&database.url).await, sql(&database.url).await);
        let locked = put(&program, "'work'").await.unwrap();
        let free = put(&program, "'work'").await.unwrap();
        let lock = format!("begin; select 1 from arrival where id = '{locked}' for update");
        open.batch_execute(&lock).await.unwrap();
        let done = taken(&server, 10).await;
        assert_eq!((ids(&done), done.tried), (vec![free], 2));
        let ArrivalState::Waiting(arrival) = state(&server, locked).await else { panic!() };
        let by_id = EnqueueArrived { jobs: vec![plan(&arrival)], wait: true, watch: None };
        let (done, ()) = tokio::join!(put_in(&server, by_id), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            open.batch_execute("rollback").await.unwrap();
        });
        assert_eq!(ids(&done), [locked]);
        assert_eq!(server.store.tried_again().await, 0);
        check_places(&program).await;
    });
}

#[test]
fn open_transaction_of_a_program_keeps_neither_servers_nor_other_programs_waiting() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let mut slow = sql(&database.url).await;
        let other = sql(&database.url).await;
        other.batch_execute("set lock_timeout = '1s'").await.unwrap();
        let open = slow.transaction().await.unwrap();
        let late = put(open.client(), "'fresh'").await.unwrap();
        // The same class, new to the store, at both doors.
        let mut ours = job();
        ours.class.job_type = "fresh".to_owned();
        assert!(matches!(server.one(enqueue(ours)).await, Reply::Enqueued(Ok(_))));
        let soon = put(&other, "'fresh'").await.unwrap();
        assert_eq!(ids(&taken(&server, 10).await), [soon]);
        open.commit().await.unwrap();
        assert_eq!(ids(&taken(&server, 10).await), [late]);
    });
}

/// One arrival that could not be taken in once kept all of them waiting, and what was to be
/// stored in the same batch for half a second each time.
#[test]
fn arrival_that_meets_an_open_transaction_keeps_no_other_waiting() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        server.add(1).await;
        let (open, program) = (sql(&database.url).await, sql(&database.url).await);
        // Of an id that is being stored, of a new class that is being made, and the
        // row for promises.
        let hold = "create temp table mine as select * from job_row;
             update mine set id = '01900000-0000-7000-8000-0000000000aa', seq = nextval('job_seq');
             begin;
             insert into job_row select * from mine;
             insert into class (id, queue, job_type, route, tenant, isolated, plain)
                 select 1000, queue, 'new', route, tenant, isolated, plain from class;
             select 1 from arrival_watch for update";
        open.batch_execute(hold).await.unwrap();
        let held = "'work', id => '01900000-0000-7000-8000-0000000000aa'";
        let same_id = put(&program, held).await.unwrap();
        let first = put(&program, "'work'").await.unwrap();
        let same_class = put(&program, "'new'").await.unwrap();
        let second = put(&program, "'work'").await.unwrap();

        let watch = Some(Span::from_secs(10));
        let order = planned(&server, 10, watch).await;
        let all = vec![enqueue(job()), Command::EnqueueArrived(order), enqueue(job())];
        let mut replies = server.try_apply(all).await.unwrap().replies;
        let Reply::EnqueuedArrived(done) = replies.remove(1) else { panic!("{replies:?}") };
        assert_eq!((ids(&done), done.tried), (vec![first, second], 4));
        // As often as it is tried.
        let third = put(&program, "'work'").await.unwrap();
        assert_eq!(ids(&put_in(&server, planned(&server, 10, watch).await).await), [third]);
        assert_eq!(server.store.tried_again().await, 1);

        open.batch_execute("rollback").await.unwrap();
        let rest = put_in(&server, planned(&server, 10, watch).await).await;
        assert_eq!(ids(&rest), [same_id, same_class]);
        check_places(&open).await;
        let logged = "select count(*) from event where type = 'job.enqueued'";
        assert_eq!(number(&open, logged).await, 8);
    });
}

#[test]
fn arrivals_keep_their_order_and_their_first_event_says_the_state_they_were_given() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let program = sql(&database.url).await;
        let now = put(&program, "'work'").await.unwrap();
        let later = put(&program, "'work', scheduled_at => '2100-01-01 00:00Z'").await.unwrap();
        let never = put(&program, "'refused'").await.unwrap();
        assert_eq!(ids(&taken(&server, 2).await), [now, later]);
        assert_eq!(ids(&taken(&server, 2).await), [never]);

        let scheduled = server.store.job(later).await.unwrap().unwrap();
        let due = Some(Timestamp(4_102_444_800_000));
        assert_eq!((scheduled.state, scheduled.due), (State::Scheduled, due));
        let refused = server.store.job(never).await.unwrap().unwrap();
        assert_eq!(refused.state, State::Discarded);
        assert_eq!(
            (refused.error.as_deref(), &*refused.ended_by),
            (Some(r#"{"type":"no"}"#), "refused")
        );

        let page = server.store.events(EventQuery::all(100));
        let events = page.await.unwrap().events;
        let logged: Vec<_> = events.iter().map(|(_, event)| (event.kind, event.state)).collect();
        let enqueued = |state| (EventName::JobEnqueued, Some(state));
        assert_eq!(
            logged,
            [
                enqueued(State::Available),
                enqueued(State::Scheduled),
                enqueued(State::Discarded),
                (EventName::JobDiscarded, Some(State::Discarded)),
            ]
        );
        check_places(&sql(&database.url).await).await;
    });
}

#[test]
fn one_arrival_is_enqueued_by_its_id_and_an_order_about_it_then_finds_the_job() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let program = sql(&database.url).await;
        let (other, id) =
            (put(&program, "'work'").await.unwrap(), put(&program, "'work'").await.unwrap());
        let ArrivalState::Waiting(arrival) = state(&server, id).await else { panic!("{id}") };
        let by_id = EnqueueArrived { jobs: vec![plan(&arrival)], wait: true, watch: None };
        let all = vec![
            Command::EnqueueArrived(by_id.clone()),
            Command::Order(order(JobAction::Cancel, id)),
        ];
        let replies = server.apply(all).await;
        // What a batch is to move it looks for first: so the server asks again.
        let Some(Reply::EnqueuedArrived(done)) = replies.first() else { panic!("{replies:?}") };
        assert_eq!(ids(done), [id]);
        let cancelled = server.one(Command::Order(order(JobAction::Cancel, id))).await;
        assert!(matches!(cancelled, Reply::Moved(_)), "{cancelled:?}");
        let record = server.store.job(id).await.unwrap().unwrap();
        assert_eq!(record.state, State::Cancelled);
        assert_eq!(ids(&put_in(&server, by_id).await), []);
        assert_eq!(ids(&taken(&server, 10).await), [other]);
        check_places(&sql(&database.url).await).await;
    });
}

#[test]
fn id_that_is_taken_is_an_error_in_the_program_and_a_job_that_came_first_stays() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let program = sql(&database.url).await;
        let id = put(&program, "'work'").await.unwrap();
        let again = format!("enqueue('work', id => '{id}')");
        let expected = ("OL003".to_owned(), format!("job {id} already exists"));
        assert_eq!(refusal(&program, &again).await, expected, "as an arrival");
        taken(&server, 10).await;
        assert_eq!(refusal(&program, &again).await, expected, "as a job");
        let bulk = |ids: [JobId; 2]| {
            let [a, b] = ids.map(|id| format!(r#"{{"type":"work","args":[],"id":"{id}"}}"#));
            format!("enqueue_all('[{a},{b}]')")
        };
        let fresh = JobId(Uuid::now_v7());
        assert_eq!(refusal(&program, &bulk([fresh, id])).await, expected);
        let twice = ("OL003".to_owned(), format!("job {fresh} already exists"));
        assert_eq!(refusal(&program, &bulk([fresh, fresh])).await, twice);

        // By another door, between the program's call and its commit.
        let mut slow = sql(&database.url).await;
        let open = slow.transaction().await.unwrap();
        put(open.client(), &format!("'work', '[2]', id => '{fresh}'")).await.unwrap();
        let theirs = NewJob { id: fresh, ..job() };
        assert!(matches!(server.one(enqueue(theirs)).await, Reply::Enqueued(Ok(_))));
        open.commit().await.unwrap();
        let late = taken(&server, 10).await;
        assert_eq!((late.jobs.len(), late.known.as_slice()), (0, [fresh].as_slice()));
        let kept = server.store.job(fresh).await.unwrap().unwrap();
        assert_eq!(kept.job.payload.args, "[{}]", "the first one's");
        assert!(!some_wait(&server).await);
        check_places(&sql(&database.url).await).await;
    });
}

#[test]
fn bad_input_is_refused_in_the_transaction_with_a_code_and_words() {
    let database = Database::new().unwrap();
    run(async {
        Server::open(&database.url).await;
        let program = sql(&database.url).await;
        for (call, words) in [
            ("enqueue('Work')", "field `type` must be lower-case words"),
            ("enqueue(null)", "field `type` is missing"),
            ("enqueue('work', '{}')", "field `args` must be an array"),
            ("enqueue('work', null)", "field `args` is missing"),
            ("enqueue('work', meta => '[]')", "field `meta` must be an object"),
            ("enqueue('work', queue => 'A b')", "field `queue` must be lower-case"),
            ("enqueue('work', priority => 101)", "field `priority` must be a whole number"),
            ("enqueue('work', timeout => '0s')", "field `timeout_ms` must be a whole number"),
            ("enqueue('work', retry => '[]')", "field `retry` must be an object"),
            ("enqueue('work', retry => '{\"max_attempts\":-1}')", "field `retry.max_attempts`"),
            ("enqueue('work', overlap => 'maybe')", "field `overlap` must be `allowed`"),
            ("enqueue('work', scheduled_at => 'infinity')", "field `scheduled_at` must be a time"),
            ("enqueue('work', expires_at => now())", "field `expires_at` must be a time to come"),
            ("enqueue('work', tenant => '')", "field `tenant` must be 1 to 255"),
            ("enqueue('work', id => gen_random_uuid())", "field `id` must be a UUIDv7"),
            ("enqueue('work', jsonb_build_array(repeat('x', 1048576)))", "the job is 1048"),
            ("enqueue_all('{}')", "field `jobs` must be an array"),
            ("enqueue_all('[]')", "field `jobs` must hold at least one job"),
            ("enqueue_all('[1]')", "jobs[0]: a job must be an object"),
            (
                "enqueue_all('[{\"type\":\"a\",\"args\":[]},{\"type\":\"a\"}]')",
                "jobs[1]: field `args` is missing",
            ),
        ] {
            let (code, message) = refusal(&program, call).await;
            assert_eq!(code, "OL002", "{call}");
            assert!(message.contains(words), "{call}: {message}");
        }
        assert_eq!(number(&program, "select count(*) from arrival").await, 0);
    });
}

#[test]
fn role_needs_the_function_and_nothing_else() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let owner = sql(&database.url).await;
        let role = format!("shop_{}", Uuid::now_v7().simple());
        owner.batch_execute(&format!("create role {role} login")).await.unwrap();
        let program = sql(&database.url).await;
        program.batch_execute(&format!("set role {role}")).await.unwrap();
        let denied = |error: Error| error.as_db_error().map(|it| it.code().code().to_owned());
        let refused = Some("42501".to_owned());
        assert_eq!(put(&program, "'work'").await.map_err(denied), Err(refused.clone()));
        owner.batch_execute(&format!("grant usage on schema outlast to {role}")).await.unwrap();
        assert_eq!(put(&program, "'work'").await.map_err(denied), Err(refused.clone()));
        let grant =
            format!("grant execute on function outlast.enqueue, outlast.enqueue_all to {role}");
        owner.batch_execute(&grant).await.unwrap();
        // A function of the program's own stands in for none of ours.
        program.batch_execute("set search_path = pg_temp, public").await.unwrap();
        let trap = "create function pg_temp.clock_timestamp() returns timestamptz language sql
                    as 'select null::timestamptz'";
        program.batch_execute(trap).await.unwrap();
        let id = put(&program, "'work'").await.unwrap();
        for table in ["arrival", "job_row", "arrival_watch"] {
            let reading = program.query(&format!("select * from outlast.{table}"), &[]).await;
            assert_eq!(reading.map(|_| ()).map_err(denied), Err(refused.clone()), "{table}");
        }
        assert_eq!(ids(&taken(&server, 10).await), [id]);
        drop(program);
        let clean = format!("drop owned by {role}; drop role {role}");
        owner.batch_execute(&clean).await.unwrap();
    });
}

#[test]
fn store_is_exported_only_when_every_arrival_has_been_taken_in() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let program = sql(&database.url).await;
        put(&program, "'work'").await.unwrap();
        let options = Options::default();
        let refused = PostgresSource::open(&database.url, &options).await.unwrap_err();
        assert!(matches!(refused, OpenError::Arrivals { waiting: 1 }), "{refused}");
        let (opened, _) =
            tokio::join!(PostgresSource::open(&database.url, &options), taken(&server, 10));
        opened.unwrap();
    });
}

/// What a server hears, beginning with the line's own first word.
async fn listening(server: &Server) -> UnboundedReceiver<Heard> {
    let (hear, mut heard) = unbounded_channel();
    server.store.listen(std::sync::Arc::new(move |it| drop(hear.send(it))));
    assert_eq!(heard.recv().await, Some(Heard::Missed));
    heard
}

async fn next(heard: &mut UnboundedReceiver<Heard>) -> Heard {
    tokio::time::timeout(Duration::from_secs(20), heard.recv()).await.unwrap().unwrap()
}

#[test]
fn commit_tells_the_servers_once_unless_one_looks_by_itself_or_the_program_does_not_want_it() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let mut heard = listening(&server).await;
        let mut program = sql(&database.url).await;
        let gone = program.transaction().await.unwrap();
        put(gone.client(), "'work'").await.unwrap();
        gone.rollback().await.unwrap();
        put(&program, "'work', wake => false").await.unwrap();
        // Every notification before this mark has come before it.
        let mark = Heard::Signals(vec![Signal::Ready(7, 1)]);
        let notify = "select pg_notify('outlast', '{\"say\":[{\"n\":[7,1]}]}')";
        program.query(notify, &[]).await.unwrap();
        assert_eq!(next(&mut heard).await, mark);

        let several = program.transaction().await.unwrap();
        for _ in 0..5 {
            put(several.client(), "'work'").await.unwrap();
        }
        several.commit().await.unwrap();
        program.query(notify, &[]).await.unwrap();
        assert_eq!(next(&mut heard).await, Heard::Signals(vec![Signal::Arrived]));
        assert_eq!(next(&mut heard).await, mark, "once for a transaction");

        let watch = Some(Span::from_secs(3600));
        let order = planned(&server, 100, watch).await;
        assert_eq!(put_in(&server, order).await.jobs.len(), 6);
        put(&program, "'work'").await.unwrap();
        program.query(notify, &[]).await.unwrap();
        assert_eq!(next(&mut heard).await, mark, "a server looks by itself");
        server.one(Command::Reset).await;
        assert!(!some_wait(&server).await, "a reset leaves none");
    });
}

#[test]
fn ids_made_by_the_function_are_version_7_of_this_moment() {
    let database = Database::new().unwrap();
    run(async {
        Server::open(&database.url).await;
        let program = sql(&database.url).await;
        let rows = "select outlast.new_id(), (extract(epoch from clock_timestamp()) * 1000)::bigint
                    from generate_series(1, 100)";
        let mut different = HashSet::new();
        for row in program.query(rows, &[]).await.unwrap() {
            let (id, now): (Uuid, i64) = (row.get(0), row.get(1));
            assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
            let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
            let millis = i64::try_from(seconds * 1000 + u64::from(nanos) / 1_000_000).unwrap();
            assert!((now - millis).abs() < 1_000, "{id} is of {millis}, now is {now}");
            different.insert(id);
        }
        assert_eq!(different.len(), 100);
    });
}
