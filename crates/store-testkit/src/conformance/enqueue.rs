//! Storing jobs.

use outlast_core::job::{Rules, State};
use outlast_core::time::Span;
use outlast_store::arrival::{ArrivalNumber, ArrivedJob, EnqueueArrived, EnqueuedArrived};
use outlast_store::command::{Command, First};
use outlast_store::reply::{EnqueueRefusal, Reply};

use crate::conformance::Harness;
use crate::conformance::world::{World, rules};

cases![
    stored_job_is_read_back_as_it_was_sent,
    known_id_is_refused_and_the_first_job_stays,
    expired_job_is_not_stored,
    all_of_a_bulk_are_stored_or_none,
    bulk_that_repeats_an_id_is_refused_with_its_position,
    job_for_later_waits_and_job_for_the_past_does_not,
    classes_are_numbered_from_one_and_shared,
    refused_command_does_not_stop_the_others_of_its_batch,
    arrival_that_is_gone_is_skipped,
];

fn stored_job_is_read_back_as_it_was_sent<H: Harness>(world: &mut World<'_, H>) {
    let mut job = world.job();
    job.payload.meta = r#"{"a":"é\n\"\\"}"#.into();
    job.payload.extra = r#"{"x":[null,1.5]}"#.into();
    job.priority = -7;
    job.timeout = Some(Span(1234));
    job.visibility = Some(Span(77));
    job.class.tenant = Some("acme".into());
    job.rules.retry.non_retryable = vec!["auth.*".into()];
    let id = world.add(job.clone());
    let kept = world.read(id);
    assert_eq!(kept.state, State::Available);
    assert_eq!(*kept.job.key, job.class);
    assert_eq!((&kept.job.payload, &kept.job.rules), (&job.payload, &job.rules));
    assert_eq!((kept.job.priority, kept.job.timeout), (job.priority, job.timeout));
    assert_eq!(kept.job.visibility, job.visibility);
    assert_eq!((kept.job.created, kept.since), (world.now(), world.now()));
    assert_eq!((kept.attempt, kept.epoch.0, kept.life.get()), (0, 0, 1));
}

fn known_id_is_refused_and_the_first_job_stays<H: Harness>(world: &mut World<'_, H>) {
    let job = world.job();
    let id = world.add(job.clone());
    let mut other = job;
    other.payload.args = "[2]".into();
    let reply = world.one(Command::Enqueue(Box::new(other)));
    assert_eq!(reply, Reply::Enqueued(Err(EnqueueRefusal::DuplicateId(id))));
    assert_eq!(world.read(id).job.payload.args, "[1]");
}

fn expired_job_is_not_stored<H: Harness>(world: &mut World<'_, H>) {
    let mut job = world.job();
    job.rules = Rules { expires_at: Some(world.now()), ..rules(3) };
    let id = job.id;
    let reply = world.one(Command::Enqueue(Box::new(job)));
    assert_eq!(reply, Reply::Enqueued(Err(EnqueueRefusal::Expired(id))));
    assert_eq!(world.find(id), None);
}

fn all_of_a_bulk_are_stored_or_none<H: Harness>(world: &mut World<'_, H>) {
    let known = world.add_plain();
    let mut jobs = vec![world.job(), world.job(), world.job()];
    jobs[1].id = known;
    let reply = world.one(Command::EnqueueAll(jobs.clone()));
    assert_eq!(reply, Reply::EnqueuedAll(Err((1, EnqueueRefusal::DuplicateId(known)))));
    assert_eq!((world.find(jobs[0].id), world.find(jobs[2].id)), (None, None));
    jobs.remove(1);
    let Reply::EnqueuedAll(Ok(stored)) = world.one(Command::EnqueueAll(jobs.clone())) else {
        panic!("a bulk of new jobs is stored");
    };
    let ids: Vec<_> = stored.iter().map(|stored| stored.id).collect();
    assert_eq!(ids, [jobs[0].id, jobs[1].id]);
}

fn bulk_that_repeats_an_id_is_refused_with_its_position<H: Harness>(world: &mut World<'_, H>) {
    let job = world.job();
    let reply = world.one(Command::EnqueueAll(vec![job.clone(), job.clone()]));
    assert_eq!(reply, Reply::EnqueuedAll(Err((1, EnqueueRefusal::DuplicateId(job.id)))));
    assert_eq!(world.find(job.id), None);
}

fn job_for_later_waits_and_job_for_the_past_does_not<H: Harness>(world: &mut World<'_, H>) {
    let now = world.now();
    let (mut later, mut past, mut pending) = (world.job(), world.job(), world.job());
    later.first = First::At(now.after(Span(1)));
    past.first = First::At(now);
    pending.first = First::OnActivation;
    let ids = [later, past, pending].map(|job| world.add(job));
    let states = ids.map(|id| world.read(id).state);
    assert_eq!(states, [State::Scheduled, State::Available, State::Pending]);
    assert_eq!(world.read(ids[0]).due, Some(now.after(Span(1))));
    assert_eq!(world.read(ids[0]).job.scheduled_for, Some(now.after(Span(1))));
}

fn classes_are_numbered_from_one_and_shared<H: Harness>(world: &mut World<'_, H>) {
    let mut other = world.job();
    other.class.queue = "other".into();
    let (first, again) = (world.add_plain(), world.add_plain());
    let other = world.add(other);
    let class = |id| world.read(id).job.class.0;
    assert_eq!([class(first), class(again), class(other)], [1, 1, 2]);
}

fn refused_command_does_not_stop_the_others_of_its_batch<H: Harness>(world: &mut World<'_, H>) {
    let known = world.job();
    world.add(known.clone());
    let (before, after) = (world.job(), world.job());
    let ids = [before.id, after.id];
    let all = [before, known, after].map(|job| Command::Enqueue(Box::new(job)));
    let replies = world.apply(all.into()).replies;
    assert!(matches!(replies[1], Reply::Enqueued(Err(_))));
    for id in ids {
        assert_eq!(world.read(id).state, State::Available);
    }
}

fn arrival_that_is_gone_is_skipped<H: Harness>(world: &mut World<'_, H>) {
    for wait in [false, true] {
        let (gone, other) = (world.job(), world.job());
        let (gone_id, other_id) = (gone.id, other.id);
        let jobs = vec![ArrivedJob { number: ArrivalNumber(1), job: gone, refused: None }];
        let order = EnqueueArrived { jobs, wait, watch: None };
        let applied =
            world.apply(vec![Command::EnqueueArrived(order), Command::Enqueue(Box::new(other))]);
        let skipped = EnqueuedArrived { tried: 1, ..EnqueuedArrived::default() };
        assert_eq!(applied.replies[0], Reply::EnqueuedArrived(skipped));
        assert_eq!(world.find(gone_id), None);
        assert_eq!(world.read(other_id).state, State::Available);
    }
}
