//! What holders report: starts, ends, output, checkpoints; and which reports are refused.

use outlast_core::budget::{Charge, Spent};
use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::{Epoch, JobId};
use outlast_core::job::{DeadLetterReason, Outcome, Refusal, State};
use outlast_core::limits::{LOG_BYTES_MAX, LOG_REMARKS_BYTES_MAX};
use outlast_core::retry::OnExhaustion;
use outlast_core::time::Span;
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::command::{
    Command, EndDetail, Fence, Finish, LogChunk, ReportedOutcome, Reporter, Stream,
};
use outlast_store::query::LogQuery;
use outlast_store::reply::{MoveRefusal, Reply};
use outlast_store::store::Store as _;

use crate::conformance::Harness;
use crate::conformance::world::{World, failed, finish, rules};

cases![
    completed_job_keeps_its_result_and_its_attempt,
    failed_job_waits_for_its_backoff_and_keeps_its_latest_error,
    last_failure_discards_and_makes_a_dead_letter_if_asked,
    error_that_must_not_be_retried_discards_at_once,
    interruption_is_free_until_its_budget_is_spent,
    attempt_says_what_it_was_charged,
    job_that_may_start_once_is_never_started_again,
    never_started_attempt_charges_nothing,
    requeued_job_takes_its_turn_anew,
    start_told_only_at_the_end_counts,
    report_of_an_older_epoch_is_refused_and_changes_nothing,
    report_by_another_worker_is_refused,
    report_with_another_attempt_number_is_refused,
    report_by_nobody_counts_and_is_marked,
    second_report_of_an_end_is_refused,
    start_of_a_job_that_nobody_holds_is_refused,
    output_is_kept_once_and_in_order,
    output_of_an_unknown_job_goes_nowhere,
    output_of_an_attempt_that_never_was_goes_nowhere,
    output_of_an_attempt_is_bounded_with_the_remarks_of_its_worker,
    attempt_that_the_worker_does_not_hold_any_more_is_lost,
    attempt_that_the_worker_ended_for_want_of_a_lease_charges_nothing,
    attempt_keeps_the_digest_of_the_pack_it_ran,
];

fn completed_job_keeps_its_result_and_its_attempt<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.run(hand);
    world.wait(Span(40));
    let detail = EndDetail {
        result: Some("{\"a\":1}".into()),
        exit_code: Some(0),
        evidence: "exit code 0".into(),
        ..EndDetail::default()
    };
    let fence = hand.fence(claimed.epoch);
    let (reported, by) = (ReportedOutcome::Completed, "the worker".to_owned());
    let report = Finish { job: id, fence, reported, detail, by };
    let moved = world.moved(Command::Finish(Box::new(report))).unwrap();
    assert_eq!((moved.from, moved.state), (State::Active, State::Completed));
    assert_eq!((moved.attempt, moved.outcome), (1, Some(Outcome::Completed)));
    let job = world.read(id);
    assert_eq!(job.result.as_deref(), Some("{\"a\":1}"));
    assert_eq!((job.finished, job.attempt), (Some(world.now()), 1));
    assert_eq!((job.holder, job.error), (None, None));
    let attempts = world.attempts(id);
    assert_eq!(attempts.len(), 1);
    let attempt = &attempts[0];
    assert_eq!((attempt.worker, attempt.exit_code), (Some(hand.worker), Some(0)));
    assert_eq!((&*attempt.by, &*attempt.evidence), ("the worker", "exit code 0"));
    assert_eq!(attempt.worker_name.as_deref(), Some("worker"));
    assert_eq!(attempt.next_state, Some(State::Completed));
}

fn failed_job_waits_for_its_backoff_and_keeps_its_latest_error<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.run(hand);
    let detail = EndDetail { error: Some("{\"n\":1}".into()), ..EndDetail::default() };
    let fence = hand.fence(claimed.epoch);
    let report = Finish { job: id, fence, reported: failed(), detail, by: "w".into() };
    let moved = world.moved(Command::Finish(Box::new(report))).unwrap();
    let due = world.now().after(Span(1000));
    assert_eq!((moved.state, moved.due), (State::Retryable, Some(due)));
    let job = world.read(id);
    assert_eq!((job.due, job.error.as_deref()), (Some(due), Some("{\"n\":1}")));
    assert_eq!((job.spent.failures, job.attempt), (1, 1));
    world.wait(Span(999));
    assert_eq!(world.sweep().moved, []);
    world.wait(Span(1));
    assert_eq!(world.sweep().moved.len(), 1);
    let again = world.take(hand);
    assert_eq!((again.attempt, again.epoch.0), (2, 2));
    world.finish(&again, hand, ReportedOutcome::Completed).unwrap();
    assert_eq!(world.read(id).error, None);
}

fn last_failure_discards_and_makes_a_dead_letter_if_asked<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    for (on_exhaustion, reason) in [
        (OnExhaustion::Discard, None),
        (OnExhaustion::DeadLetter, Some(DeadLetterReason::Exhausted)),
    ] {
        let mut job = world.job();
        job.rules = rules(1);
        job.rules.retry.on_exhaustion = on_exhaustion;
        let id = world.add(job);
        let claimed = world.run(hand);
        let moved = world.finish(&claimed, hand, failed()).unwrap();
        assert_eq!((moved.state, moved.dead_letter), (State::Discarded, reason.is_some()));
        assert_eq!(world.read(id).dead_letter, reason);
    }
}

fn error_that_must_not_be_retried_discards_at_once<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut job = world.job();
    job.rules.retry.non_retryable = vec!["auth.*".into()];
    world.add(job);
    let claimed = world.run(hand);
    let reported = ReportedOutcome::Failed { error_type: "auth.expired".into(), retryable: true };
    assert_eq!(world.finish(&claimed, hand, reported).unwrap().state, State::Discarded);
}

fn interruption_is_free_until_its_budget_is_spent<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    world.budgets.interruptions = 2;
    let id = world.add_plain();
    for n in 1..=2 {
        let claimed = world.run(hand);
        let moved = world.finish(&claimed, hand, ReportedOutcome::Interrupted).unwrap();
        assert_eq!(moved.state, State::Available);
        assert_eq!((world.read(id).spent.interruptions, world.read(id).spent.failures), (n, 0));
    }
    let claimed = world.run(hand);
    let moved = world.finish(&claimed, hand, ReportedOutcome::Interrupted).unwrap();
    assert_eq!((moved.state, world.read(id).spent.failures), (State::Retryable, 1));
    let charges: Vec<Vec<_>> = world
        .attempts(id)
        .iter()
        .map(|it| it.charge.map_or_else(Vec::new, |charge| charge.words().collect()))
        .collect();
    let free = || vec!["interruption"];
    assert_eq!(charges, [free(), free(), vec!["interruption", "failure"]]);
}

fn attempt_says_what_it_was_charged<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let cases: [(ReportedOutcome, &[&str]); 6] = [
        (ReportedOutcome::Completed, &[]),
        (failed(), &["failure"]),
        (ReportedOutcome::TimedOut, &["failure"]),
        (ReportedOutcome::Interrupted, &["interruption"]),
        (ReportedOutcome::Lost, &["loss"]),
        (ReportedOutcome::NotStarted, &[]),
    ];
    for (reported, words) in cases {
        let id = world.add_plain();
        let claimed = world.run(hand);
        assert_eq!(world.attempts(id)[0].charge, None, "it runs");
        world.finish(&claimed, hand, reported.clone()).unwrap();
        let charge = world.attempts(id)[0].charge.expect("it has ended");
        assert_eq!(charge.words().collect::<Vec<_>>(), words, "{reported:?}");
        world.cancel(id).ok();
    }
    // Its worker ended it, since no server renewed the lease.
    let id = world.add_plain();
    let claimed = world.run(hand);
    let evidence = Evidence::of(EvidenceCode::Lease, "no server for too long");
    let detail = EndDetail { evidence, ..EndDetail::default() };
    let (job, fence, reported) = (id, hand.fence(claimed.epoch), ReportedOutcome::Lost);
    let report = Finish { job, fence, reported, detail, by: "the worker".into() };
    world.moved(Command::Finish(Box::new(report))).unwrap();
    assert_eq!(world.attempts(id)[0].charge, Some(Charge::default()));
    world.cancel(id).unwrap();
    // The standard has the silence of a plain client use up a retry.
    let mut job = world.job();
    job.visibility = Some(Span(100));
    let id = world.add(job);
    world.fetch(Some("plain"), 1);
    world.wait(Span(200));
    world.sweep();
    let charge = world.attempts(id)[0].charge.expect("it has ended");
    assert_eq!(charge.words().collect::<Vec<_>>(), ["loss", "failure"]);
}

fn job_that_may_start_once_is_never_started_again<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    for reported in
        [failed(), ReportedOutcome::TimedOut, ReportedOutcome::Interrupted, ReportedOutcome::Lost]
    {
        let mut job = world.job();
        job.rules = rules(1);
        let id = world.add(job);
        let claimed = world.take(hand);
        let moved = world.finish(&claimed, hand, reported.clone()).unwrap();
        assert_eq!(moved.state, State::Discarded, "{reported:?}");
        assert_eq!(world.claim(hand, 1).len(), 0, "{reported:?}");
        assert_eq!(world.read(id).epoch.0, 1);
    }
}

fn never_started_attempt_charges_nothing<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut job = world.job();
    job.rules = rules(1);
    let id = world.add(job);
    let claimed = world.take(hand);
    let moved = world.finish(&claimed, hand, ReportedOutcome::NotStarted).unwrap();
    assert_eq!((moved.state, moved.outcome), (State::Available, Some(Outcome::Undelivered)));
    assert_eq!(world.read(id).spent, Spent::default());
}

fn requeued_job_takes_its_turn_anew<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let first = world.add_plain();
    let claimed = world.run(hand);
    let second = world.add_plain();
    world.finish(&claimed, hand, ReportedOutcome::Requeued).unwrap();
    let taken: Vec<_> = world.claim(hand, 2).iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(taken, [first, second]);
    assert_eq!(world.read(first).spent, Spent::default());
}

fn start_told_only_at_the_end_counts<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.take(hand);
    world.wait(Span(30));
    let started = Some(world.now());
    world.wait(Span(10));
    let detail = EndDetail { started, ..EndDetail::default() };
    let fence = hand.fence(claimed.epoch);
    let report = Finish { job: id, fence, reported: ReportedOutcome::Lost, detail, by: "w".into() };
    let moved = world.moved(Command::Finish(Box::new(report))).unwrap();
    // A loss is charged only because the attempt had started.
    assert_eq!(moved.outcome, Some(Outcome::Lost));
    assert_eq!((world.read(id).spent.losses, world.read(id).started), (1, started));
    assert_eq!(world.attempts(id)[0].started, started);
}

fn report_of_an_older_epoch_is_refused_and_changes_nothing<H: Harness>(world: &mut World<'_, H>) {
    let old = world.worker();
    let id = world.add_plain();
    let claimed = world.run(old);
    world.bury(old.worker);
    let new = world.worker();
    let current = world.run(new);
    let before = world.read(id);
    let superseded = Refusal::Superseded { reported: claimed.epoch, current: current.epoch };
    for reported in [
        ReportedOutcome::Completed,
        failed(),
        ReportedOutcome::Interrupted,
        ReportedOutcome::NotStarted,
    ] {
        let late = world.finish(&claimed, old, reported);
        assert_eq!(late, Err(MoveRefusal::Refused(superseded)));
    }
    assert_eq!(world.start(&claimed, old), Err(MoveRefusal::Refused(superseded)));
    assert_eq!(world.read(id), before);
}

fn report_by_another_worker_is_refused<H: Harness>(world: &mut World<'_, H>) {
    let (holder, other) = (world.worker(), world.worker());
    let id = world.add_plain();
    let claimed = world.run(holder);
    let refused = Err(MoveRefusal::Refused(Refusal::NotHolder { current: claimed.epoch }));
    assert_eq!(world.finish(&claimed, other, ReportedOutcome::Completed), refused);
    let plain = Fence { worker: Some(Reporter::Plain("worker".into())), ..Fence::default() };
    assert_eq!(world.moved(finish(id, plain, ReportedOutcome::Completed)), refused);
    assert_eq!(world.read(id).state, State::Active);
}

fn report_with_another_attempt_number_is_refused<H: Harness>(world: &mut World<'_, H>) {
    let id = world.add_plain();
    let claimed = world.fetch(Some("plain"), 1).remove(0);
    let attempt = |attempt| Fence { attempt: Some(attempt), ..Fence::default() };
    assert_eq!(claimed.attempt, 1);
    let refused = Refusal::OtherAttempt { reported: 2, current: 1 };
    let refused = Err(MoveRefusal::Refused(refused));
    assert_eq!(world.moved(finish(id, attempt(2), ReportedOutcome::Completed)), refused);
    assert!(world.moved(finish(id, attempt(1), ReportedOutcome::Completed)).is_ok());
}

fn report_by_nobody_counts_and_is_marked<H: Harness>(world: &mut World<'_, H>) {
    let id = world.add_plain();
    world.fetch(Some("plain"), 1);
    world.moved(finish(id, Fence::default(), ReportedOutcome::Completed)).unwrap();
    assert!(world.attempts(id)[0].evidence.contains("unattributed"));
}

fn second_report_of_an_end_is_refused<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    world.add_plain();
    let claimed = world.run(hand);
    world.finish(&claimed, hand, ReportedOutcome::Completed).unwrap();
    let terminal = Err(MoveRefusal::Refused(Refusal::Terminal(State::Completed)));
    assert_eq!(world.finish(&claimed, hand, ReportedOutcome::Completed), terminal);
    assert_eq!(world.finish(&claimed, hand, failed()), terminal);
}

fn start_of_a_job_that_nobody_holds_is_refused<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.take(hand);
    world.finish(&claimed, hand, ReportedOutcome::NotStarted).unwrap();
    let refused = Err(MoveRefusal::Refused(Refusal::WrongState(State::Available)));
    assert_eq!(world.start(&claimed, hand), refused);
    let unknown = world.job().id;
    let lost = world.moved(finish(unknown, hand.fence(Epoch(1)), ReportedOutcome::Completed));
    assert_eq!(lost, Err(MoveRefusal::NotFound));
    assert_eq!(world.read(id).state, State::Available);
}

fn output_is_kept_once_and_in_order<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.run(hand);
    for (n, bytes) in [(0, b"a\xff"), (1, b"bb"), (0, b"xx"), (1, b"yy"), (2, b"cc")] {
        let (stream, bytes) = (Stream::Stdout, bytes.to_vec());
        let chunk = LogChunk { job: id, epoch: claimed.epoch, n, stream, bytes };
        assert_eq!(world.one(Command::Log(chunk)), Reply::Done);
    }
    let page = |after, limit| LogQuery { job: id, after, limit };
    let lines = world.ask(world.store().logs(page(0, 10))).lines;
    let bytes: Vec<_> = lines.iter().map(|line| line.bytes.as_slice()).collect();
    assert_eq!(bytes, [&b"a\xff"[..], b"bb", b"cc"]);
    let rest = world.ask(world.store().logs(page(lines[0].id, 1))).lines;
    assert_eq!(rest, lines[1..2]);
}

fn print<H: Harness>(world: &mut World<'_, H>, chunk: LogChunk) {
    assert_eq!(world.one(Command::Log(chunk)), Reply::Done);
}

fn chunk(job: JobId, epoch: Epoch, n: u32, stream: Stream, bytes: &[u8]) -> LogChunk {
    LogChunk { job, epoch, n, stream, bytes: bytes.to_vec() }
}

/// The numbers of attempts, and what they printed.
fn printed<H: Harness>(world: &World<'_, H>, job: JobId) -> Vec<(u64, Vec<u8>)> {
    let (mut after, mut all) = (0, Vec::new());
    loop {
        let lines = world.ask(world.store().logs(LogQuery { job, after, limit: 100 })).lines;
        let Some(last) = lines.last() else { return all };
        after = last.id;
        all.extend(lines.into_iter().map(|line| (line.epoch.0, line.bytes)));
    }
}

/// Each number once had room for a whole attempt's output.
fn output_of_an_attempt_that_never_was_goes_nowhere<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    print(world, chunk(id, Epoch(1), 0, Stream::Stdout, b"early"));
    let first = world.run(hand);
    for epoch in [0, 2, 1 << 40] {
        print(world, chunk(id, Epoch(epoch), 0, Stream::Stderr, b"invented"));
    }
    print(world, chunk(id, first.epoch, 0, Stream::Stdout, b"first"));
    world.finish(&first, hand, ReportedOutcome::Lost).unwrap();
    print(world, chunk(id, first.epoch, 1, Stream::Stdout, b"late"));
    let silent = world.run(hand);
    world.finish(&silent, hand, ReportedOutcome::Interrupted).unwrap();
    let last = world.run(hand);
    print(world, chunk(id, silent.epoch, 0, Stream::Stdout, b"later"));
    print(world, chunk(id, last.epoch, 0, Stream::Stdout, b"last"));
    world.finish(&last, hand, ReportedOutcome::Completed).unwrap();
    print(world, chunk(id, first.epoch, 2, Stream::Stdout, b"latest"));
    let all = printed(world, id);
    let all: Vec<_> = all.iter().map(|(epoch, bytes)| (*epoch, bytes.as_slice())).collect();
    let expected =
        [(1, b"first".as_slice()), (1, b"late"), (2, b"later"), (3, b"last"), (1, b"latest")];
    assert_eq!(all, expected);
}

fn output_of_an_attempt_is_bounded_with_the_remarks_of_its_worker<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    let id = world.add_plain();
    let attempt = (id, world.run(hand).epoch);
    let (output, remarks) = (vec![b'x'; LOG_BYTES_MAX], vec![b'y'; LOG_REMARKS_BYTES_MAX]);
    print(world, chunk(attempt.0, attempt.1, 0, Stream::Stdout, &output));
    print(world, chunk(attempt.0, attempt.1, 1, Stream::Stderr, b"x"));
    print(world, chunk(attempt.0, attempt.1, 2, Stream::Worker, b"cut"));
    print(world, chunk(attempt.0, attempt.1, 3, Stream::Worker, &remarks));
    let kept: Vec<_> = printed(world, id).iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(kept, [LOG_BYTES_MAX, 3]);
}

fn output_of_an_unknown_job_goes_nowhere<H: Harness>(world: &mut World<'_, H>) {
    let (job, epoch) = (world.job().id, Epoch(1));
    let chunk = LogChunk { job, epoch, n: 0, stream: Stream::Stderr, bytes: b"a".to_vec() };
    assert_eq!(world.one(Command::Log(chunk)), Reply::Done);
    let query = LogQuery { job, after: 0, limit: 10 };
    assert_eq!(world.ask(world.store().logs(query)).lines, []);
}

fn attempt_that_the_worker_does_not_hold_any_more_is_lost<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.run(hand);
    let moved = world.finish(&claimed, hand, ReportedOutcome::Lost).unwrap();
    assert_eq!((moved.state, moved.outcome), (State::Available, Some(Outcome::Lost)));
    assert_eq!(world.read(id).spent.losses, 1);
}

fn attempt_that_the_worker_ended_for_want_of_a_lease_charges_nothing<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    let id = world.add_plain();
    for _ in 0..4 {
        let claimed = world.run(hand);
        let evidence = Evidence::of(EvidenceCode::Lease, "lease not renewed");
        let detail = EndDetail { evidence: evidence.clone(), ..EndDetail::default() };
        let (fence, by) = (hand.fence(claimed.epoch), "w".into());
        let report = Finish { job: id, fence, reported: ReportedOutcome::Lost, detail, by };
        let moved = world.moved(Command::Finish(Box::new(report))).unwrap();
        assert_eq!((moved.state, moved.outcome), (State::Available, Some(Outcome::Interrupted)));
        let job = world.read(id);
        assert_eq!((job.spent, job.isolated), (Spent::default(), false));
        assert_eq!(world.attempts(id).last().unwrap().evidence, evidence);
    }
}

fn attempt_keeps_the_digest_of_the_pack_it_ran<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let digests = |world: &World<'_, H>| -> Vec<Option<String>> {
        let attempts = world.attempts(id);
        attempts.into_iter().map(|attempt| attempt.pack_digest.map(|it| it.to_string())).collect()
    };
    let claimed = world.run(hand);
    assert_eq!(digests(world), [None]);
    world.start_with(&claimed, hand, Some("one")).unwrap();
    assert_eq!(digests(world), [Some("one".into())], "of a running attempt");
    // A repeated start without it takes nothing away.
    world.start(&claimed, hand).unwrap();
    world.finish(&claimed, hand, ReportedOutcome::Interrupted).unwrap();
    assert_eq!(digests(world), [Some("one".into())], "reported with its start");
    let claimed = world.run(hand);
    let detail = EndDetail { pack_digest: Some("two".into()), ..EndDetail::default() };
    let (fence, by) = (hand.fence(claimed.epoch), String::new());
    let report = Finish { job: id, fence, reported: ReportedOutcome::Interrupted, detail, by };
    world.moved(Command::Finish(Box::new(report))).unwrap();
    assert_eq!(digests(world), [Some("one".into()), Some("two".into())]);
    let claimed = world.run(hand);
    world.start_with(&claimed, hand, Some("three")).unwrap();
    world.move_worker(hand.worker, WorkerEvent::Died).unwrap();
    let expected = ["one", "two", "three"].map(|digest| Some(digest.to_owned()));
    assert_eq!(digests(world), expected, "a lost attempt has it too");
}
