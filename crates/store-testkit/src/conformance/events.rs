//! Readers of events: nothing is skipped and nothing told twice, whatever writers and clocks
//! do between two pages.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use outlast_core::budget::Budgets;
use outlast_core::id::{JobId, WorkerId};
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{
    Batch, BatchId, ClaimFrom, Claimant, Command, First, NewJob, QueueOrder, Renew, ReportedOutcome,
};
use outlast_store::event::{EventName, EventQuery, NewestPage, NewestQuery};
use outlast_store::reply::Reply;
use outlast_store::store::{Clock, Store};
use uuid::Uuid;

use crate::conformance::Harness;
use crate::conformance::world::{START, World, failed};

cases![
    readers_miss_nothing_and_read_nothing_twice,
    readers_pass_hundreds_of_servers,
    events_of_a_job_are_whole_wherever_it_is,
    start_that_is_reported_again_is_no_event,
    events_that_a_later_build_has_added_are_passed_over,
    newest_events_are_read_back_to_front,
    newest_events_are_of_the_time_and_the_job_asked_for,
    rare_events_are_found_behind_any_number_of_others,
];

/// A clock that tells each who asks something else: as far apart as those of two connections
/// may be.
#[derive(Debug)]
struct Lagging(AtomicI64);

impl Clock for Lagging {
    fn now(&self) -> Timestamp {
        let asked = self.0.fetch_add(1, Ordering::Relaxed);
        // Forward by a millisecond every other time, and back by up to 40.
        Timestamp(START.0 + asked / 2 - (asked * 7919) % 41)
    }
}

/// Numbers that a seed repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("less than a usize")
    }

    fn flip(&mut self) -> bool {
        self.next().is_multiple_of(2)
    }
}

/// A server: one that numbers its batches, for its work or for heartbeats.
struct Lane {
    server: Uuid,
    batches: u64,
}

/// A reader with its own appetite, and what it has read so far.
#[derive(Default)]
struct Reader {
    cursor: Option<String>,
    seen: Vec<JobId>,
}

struct Scene<'w, 'h, H: Harness> {
    world: &'w mut World<'h, H>,
    store: H::Store,
    random: Random,
    lanes: Vec<Lane>,
    stored: Vec<(usize, JobId)>,
}

impl<'w, 'h, H: Harness> Scene<'w, 'h, H> {
    fn new(world: &'w mut World<'h, H>, seed: u64) -> Self {
        let store = world.open_with(Arc::new(Lagging(AtomicI64::new(0))));
        let random = Random(seed);
        Self { world, store, random, lanes: Vec::new(), stored: Vec::new() }
    }

    fn begin_lane(&mut self) -> usize {
        // Ids are not in the order of time.
        let server = Uuid::from_u128(u128::from(self.random.next()) << 64);
        self.lanes.push(Lane { server, batches: 0 });
        self.lanes.len() - 1
    }

    /// Writes a batch of some jobs; one that begins with a heartbeat goes the way of those.
    fn write(&mut self, at: usize, jobs: usize) {
        let mut commands = Vec::new();
        if self.random.flip() {
            let worker = WorkerId(Uuid::from_u128(1));
            commands.push(Command::Renew(Renew { worker, lease: Span(1), in_flight: 0 }));
        }
        for _ in 0..jobs {
            let job = self.world.job();
            self.stored.push((at, job.id));
            commands.push(Command::Enqueue(Box::new(job)));
        }
        let lane = &mut self.lanes[at];
        lane.batches += 1;
        let id = BatchId { server: lane.server, n: lane.batches };
        let batch = Batch { id, jitter_seed: 1, budgets: Budgets::DEFAULT, commands };
        let applied = self.world.ask(self.store.apply(batch.into()));
        let stored = applied.replies.iter().filter(|reply| matches!(reply, Reply::Enqueued(Ok(_))));
        assert_eq!(stored.count(), jobs);
    }

    fn read(&mut self, reader: &mut Reader, limit: usize) -> usize {
        let query = EventQuery {
            after: reader.cursor.clone(),
            names: vec!["job.enqueued".into()],
            ..EventQuery::all(u32::try_from(limit).expect("a page"))
        };
        let page = self.world.ask(self.store.events(query));
        assert!(page.events.len() <= limit);
        assert!(page.events.iter().all(|(_, event)| event.by == "producer"));
        // Half of the readers come back with the cursor of an event in the middle.
        let taken = match page.events.len() {
            0 => 0,
            events if self.random.flip() => 1 + self.random.below(events),
            events => events,
        };
        reader.cursor = match page.events.get(taken.wrapping_sub(1)) {
            Some((cursor, _)) if taken < page.events.len() => Some(cursor.clone()),
            Some(_) | None => Some(page.next),
        };
        reader.seen.extend(page.events.iter().take(taken).filter_map(|(_, event)| event.job));
        taken
    }

    /// Checks that a reader who has read on to the end knows each job, once, and those of
    /// each writer in the order of writing.
    fn check(&self, reader: &Reader, from: usize) {
        let stored = &self.stored[from..];
        let known: HashSet<JobId> = reader.seen.iter().copied().collect();
        let missed = stored.iter().filter(|(_, job)| !known.contains(job)).count();
        assert_eq!(missed, 0, "of {} were missed", stored.len());
        assert_eq!(reader.seen.len(), stored.len(), "returned twice");
        let place: HashMap<JobId, usize> = reader.seen.iter().copied().zip(0..).collect();
        let mut last: HashMap<usize, usize> = HashMap::new();
        for (lane, job) in stored {
            let before = last.insert(*lane, place[job]);
            assert!(before.is_none_or(|before| before < place[job]), "order of a writer");
        }
    }
}

fn readers_miss_nothing_and_read_nothing_twice<H: Harness>(world: &mut World<'_, H>) {
    for seed in 0..6 {
        let mut scene = Scene::new(world, seed);
        let mut readers: Vec<Reader> = (0..3).map(|_| Reader::default()).collect();
        for _ in 0..2 {
            scene.begin_lane();
        }
        let mut late = None;
        for step in 0..120 {
            match scene.random.below(10) {
                0 => {
                    scene.begin_lane();
                }
                1 => {
                    scene.world.ask(scene.store.now());
                }
                2..=3 => {
                    let at = scene.random.below(readers.len());
                    let limit = 1 + scene.random.below(20);
                    scene.read(&mut readers[at], limit);
                }
                _ => {
                    let at = scene.random.below(scene.lanes.len());
                    let jobs = 1 + scene.random.below(5);
                    scene.write(at, jobs);
                }
            }
            if step == 60 {
                let end = scene.world.ask(scene.store.events_end());
                let reader = Reader { cursor: Some(end), seen: Vec::new() };
                late = Some((reader, scene.stored.len()));
            }
        }
        let (reader, from) = late.expect("half-way is passed");
        let all = readers.into_iter().map(|reader| (reader, 0)).chain([(reader, from)]);
        for (mut reader, from) in all {
            let limit = 1 + scene.random.below(40);
            while scene.read(&mut reader, limit) > 0 {}
            scene.check(&reader, from);
        }
        let store = scene.store.clone();
        scene.world.ask(store.close());
    }
}

fn readers_pass_hundreds_of_servers<H: Harness>(world: &mut World<'_, H>) {
    let mut scene = Scene::new(world, 7);
    for _ in 0..520 {
        let at = scene.begin_lane();
        scene.write(at, 1);
    }
    let mut reader = Reader::default();
    while scene.read(&mut reader, 200) > 0 {}
    scene.check(&reader, 0);
    let at = scene.begin_lane();
    scene.write(at, 1);
    while scene.read(&mut reader, 200) > 0 {}
    scene.check(&reader, 0);
}

/// What is read of a job alone is what the whole log says of it, to its end.
fn check_events_of<H: Harness>(world: &mut World<'_, H>, job: JobId) {
    // Another server's, later.
    world.wait(Span::from_secs(5));
    let other = world.job();
    world.add(other);
    let query = |job| EventQuery { job, ..EventQuery::all(1_000) };
    let plain = |page: outlast_store::event::EventPage| {
        let events = page.events.into_iter().map(|(_, event)| event);
        events.filter(|event| event.job == Some(job)).collect::<Vec<_>>()
    };
    let alone = world.ask(world.store().events(query(Some(job))));
    assert_eq!(alone.next, world.ask(world.store().events_end()));
    let all = world.ask(world.store().events(query(None)));
    assert_eq!(plain(alone), plain(all));
}

fn events_of_a_job_are_whole_wherever_it_is<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut job = world.job();
    job.class.queue = "ours".into();
    job.first = First::At(world.now().after(Span::from_secs(20)));
    let id = world.add(job);
    check_events_of(world, id);
    let mut in_flight = None;
    for _ in 0..2 {
        world.wait(Span::from_secs(60));
        world.sweep();
        check_events_of(world, id);
        let class = world.read(id).job.class;
        let claimant = Claimant::Native { worker: hand.worker, session: hand.session };
        let from = ClaimFrom::Classes([class].into());
        let claimed = world.claim_by(claimant, from, 1).expect("it may claim").remove(0);
        check_events_of(world, id);
        world.start(&claimed, hand).expect("it may start");
        check_events_of(world, id);
        if in_flight.is_none() {
            world.finish(&claimed, hand, failed()).expect("it may end");
            check_events_of(world, id);
        }
        in_flight = Some(claimed);
    }
    world.cancel(id).expect("it may be cancelled");
    check_events_of(world, id);
    world.finish(&in_flight.expect("it is held"), hand, ReportedOutcome::Interrupted).ok();
    check_events_of(world, id);
}

/// Two builds may use one store while it is upgraded.
fn events_that_a_later_build_has_added_are_passed_over<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.run(hand);
    world.finish(&claimed, hand, ReportedOutcome::Completed).expect("it may end");
    let query = |after, limit| {
        let (names, job) = (vec!["job.*".to_owned()], Some(id));
        EventQuery { after, names, job, ..EventQuery::all(limit) }
    };
    let kinds = |world: &World<'_, H>| {
        let newest = NewestQuery { of: query(None, 100), since: None, until: None, before: None };
        let newest = world.ask(world.store().newest_events(newest)).events;
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = world.ask(world.store().events(query(after, 1)));
            all.extend(page.events.into_iter().map(|(_, event)| event.kind));
            after = Some(page.next);
            if page.is_complete {
                break;
            }
        }
        assert!(newest.iter().map(|(_, event)| event.kind).eq(all.iter().copied()));
        all
    };
    let mut expected = kinds(world);
    assert!(expected.contains(&EventName::JobEnqueued), "{expected:?}");
    for name in [EventName::JobEnqueued, EventName::JobStarted, EventName::JobCompleted] {
        world.harness().misname(world.store(), name);
        expected.retain(|kind| *kind != name);
        assert_eq!(kinds(world), expected);
    }
}

/// A worker that attaches again repeats what the last session may not have heard.
fn start_that_is_reported_again_is_no_event<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.take(hand);
    let first = world.start(&claimed, hand).expect("it may start");
    let started = world.read(id).started;
    let names = |world: &World<'_, H>| {
        let job = Some(id);
        let all = (Vec::new(), Vec::new());
        let query = EventQuery { names: all.0, queues: all.1, job, ..EventQuery::all(100) };
        let page = world.ask(world.store().events(query));
        page.events.into_iter().map(|(_, event)| event.kind).collect::<Vec<_>>()
    };
    let before = names(world);
    world.wait(Span(40));
    let again = world.start_with(&claimed, hand, Some("abc")).expect("it is answered as before");
    assert_eq!((again.state, again.epoch), (first.state, first.epoch));
    assert_eq!(world.read(id).started, started, "it started then, and not now");
    assert_eq!(names(world), before);
    world.finish(&claimed, hand, ReportedOutcome::Completed).expect("it may end");
    assert_eq!(world.attempts(id)[0].pack_digest.as_deref(), Some("abc"));
}

fn newest(of: EventQuery, before: Option<String>) -> NewestQuery {
    NewestQuery { of, since: None, until: None, before }
}

fn every(limit: u32) -> EventQuery {
    EventQuery::all(limit)
}

fn jobs_of(page: &NewestPage) -> Vec<JobId> {
    page.events.iter().filter_map(|(_, event)| event.job).collect()
}

/// Pages from the end to the beginning are the whole log, in the order of time, and each event of
/// them is where a reader can go on, in both directions.
fn newest_events_are_read_back_to_front<H: Harness>(world: &mut World<'_, H>) {
    let mut scene = Scene::new(world, 11);
    for _ in 0..4 {
        scene.begin_lane();
    }
    for _ in 0..40 {
        let (at, jobs) = (scene.random.below(4), scene.random.below(4));
        scene.write(at, jobs);
    }
    let stored: HashSet<JobId> = scene.stored.iter().map(|(_, job)| *job).collect();
    let page = |query| scene.world.ask(scene.store.newest_events(query));
    let mut all: Vec<(String, JobId)> = Vec::new();
    let (mut before, mut last) = (None, Timestamp(i64::MAX));
    loop {
        let of = EventQuery { names: vec!["job.enqueued".into()], ..every(7) };
        let found = page(newest(of, before));
        for (_, event) in found.events.iter().rev() {
            assert!(event.at <= last, "in the order of time");
            last = event.at;
        }
        let jobs = jobs_of(&found);
        let ids = found.events.into_iter().map(|(id, _)| id);
        all.splice(0..0, ids.zip(jobs));
        before = found.previous;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(all.len(), stored.len(), "each once");
    assert_eq!(all.iter().map(|(_, job)| *job).collect::<HashSet<_>>(), stored);
    for at in [0, 1, all.len() / 2, all.len() - 2, all.len() - 1] {
        let (earlier, later) = all.split_at(at + 1);
        let jobs = |of: &[(String, JobId)]| of.iter().map(|(_, job)| *job).collect::<Vec<_>>();
        let id = all[at].0.clone();
        let names = vec!["job.enqueued".to_owned()];
        let after = EventQuery { after: Some(id.clone()), names: names.clone(), ..every(1000) };
        let read = scene.world.ask(scene.store.events(after));
        let read: HashSet<JobId> = read.events.iter().filter_map(|(_, it)| it.job).collect();
        assert_eq!(read, jobs(later).into_iter().collect(), "on from {id}");
        let back = page(newest(EventQuery { names, ..every(1000) }, Some(id)));
        assert_eq!(jobs_of(&back), jobs(earlier));
        assert_eq!(back.previous, None);
    }
}

fn newest_events_are_of_the_time_and_the_job_asked_for<H: Harness>(world: &mut World<'_, H>) {
    let mut jobs = Vec::new();
    let mut times = Vec::new();
    for _ in 0..5 {
        world.wait(Span::from_secs(10));
        times.push(world.now());
        jobs.push(world.add_plain());
    }
    let enqueued = || EventQuery { names: vec!["job.enqueued".into()], ..every(100) };
    let found = |query| jobs_of(&world.ask(world.store().newest_events(query)));
    let of_time = |since: Option<usize>, until: Option<usize>| {
        let time = |at: usize| times[at];
        let (since, until) = (since.map(time), until.map(time));
        found(NewestQuery { since, until, ..newest(enqueued(), None) })
    };
    assert_eq!(of_time(Some(1), Some(3)), jobs[1..3]);
    assert_eq!(of_time(Some(4), None), jobs[4..]);
    assert_eq!(of_time(None, Some(1)), jobs[..1]);
    assert_eq!(of_time(Some(3), Some(3)), []);
    assert_eq!(found(newest(EventQuery { limit: 2, ..enqueued() }, None)), jobs[3..]);
    for job in &jobs {
        assert_eq!(found(newest(EventQuery { job: Some(*job), ..every(100) }, None)), [*job]);
    }
    let nowhere = newest(enqueued(), Some("@1.2".into()));
    let refused =
        world.refusal(|store| async move { store.newest_events(nowhere).await.map(drop) });
    assert!(matches!(refused, Some(outlast_store::error::StoreError::Rejected(_))), "{refused:?}");
}

/// A page of losses once showed none where a store was busy: it looked at 8 MB of the log.
fn rare_events_are_found_behind_any_number_of_others<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let lost = world.add_plain();
    world.run(hand);
    world.bury(hand.worker);
    let by = "api: ops (curl/8) from 192.0.2.7".to_owned();
    let pause = QueueOrder { queue: "default".into(), paused: true, by: by.clone() };
    world.one(Command::Queue(pause));
    for _ in 0..90 {
        let job = world.job();
        // Long enough that few of them are as much as one page looks at.
        let enqueue = NewJob { by: "x".repeat(100_000), ..job };
        world.add(enqueue);
    }
    let of = |names: &[&str], audit: bool| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        newest(EventQuery { names, audit, ..every(10) }, None)
    };
    let find = |query| world.ask(world.store().newest_events(query));
    let losses = find(of(&["job.lost"], false));
    assert_eq!((jobs_of(&losses), losses.previous), (vec![lost], None));
    let changes = find(of(&[], true));
    let found: Vec<_> = changes.events.iter().map(|(_, it)| (it.kind, it.by.clone())).collect();
    assert_eq!((found, changes.previous), (vec![(EventName::QueuePaused, by)], None));
    assert_eq!(find(of(&["job.lost"], true)).events, []);
    // One for each page, and then no more.
    let both =
        EventQuery { names: vec!["job.lost".into(), "job.dead_lettered".into()], ..every(1) };
    let page = find(newest(both.clone(), None));
    assert_eq!(jobs_of(&page), [lost]);
    let before = page.previous.expect("the page is full");
    assert_eq!(find(newest(both, Some(before))).events, []);
}
