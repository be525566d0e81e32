//! The table of all pairs, which is also the page `docs/inside/state-machine.md`.
//!
//! The page is written from what the rules decide and compared with what is committed,
//! so no pair changes unseen. `UPDATE_DOCS=1 cargo test -p outlast-core` rewrites it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{NOW, active, judged, rules, worker};
use crate::budget::{Budgets, Spent};
use crate::id::Epoch;
use crate::job::{Answer, Event, EventKind, Hold, Job, Place, Refusal, Rules, State, Turn};
use crate::retry::OnExhaustion;
use crate::worker::lifecycle::{self, Stage, StageEvent};
use crate::worker::liveness::{self, Liveness, Phase, Standing, WorkerEvent};

/// Every event, with the details that make a difference.
fn events() -> Vec<(&'static str, Event<'static>)> {
    let claim = Event::Claim { worker: Some(worker()), starts: false };
    vec![
        ("activate", Event::Activate),
        ("due", Event::Due),
        ("claim", claim),
        ("claim that is the start (plain OJS)", Event::Claim { worker: None, starts: true }),
        ("start", Event::Start),
        ("complete", Event::Complete),
        ("fail", Event::Fail { error_type: "error", retryable: true }),
        ("fail, not to be retried", Event::Fail { error_type: "error", retryable: false }),
        ("time out", Event::TimeOut),
        ("interrupt", Event::Interrupt),
        ("cut off", Event::CutOff),
        ("release (never started)", Event::Release),
        ("requeue", Event::Requeue),
        ("lose, beside others", Event::Lose { alone: false, mass: false }),
        ("lose, alone", Event::Lose { alone: true, mass: false }),
        ("lose, many workers at once", Event::Lose { alone: true, mass: true }),
        ("visibility passed (plain OJS)", Event::ExpireVisibility),
        ("cancel", Event::Cancel),
        ("expire", Event::Expire),
        ("strand", Event::Strand),
        ("replay", Event::Replay),
    ]
}

fn waiting() -> Vec<(&'static str, Job)> {
    let expired = Rules { expires_at: Some(NOW), ..rules(3) };
    vec![
        ("scheduled", Job::new(State::Scheduled, rules(3))),
        ("retryable", Job::new(State::Retryable, rules(3))),
        ("pending", Job::new(State::Pending, rules(3))),
        ("available", Job::new(State::Available, rules(3))),
        ("available, past `expires_at`", Job::new(State::Available, expired)),
    ]
}

fn ended() -> Vec<(&'static str, Job)> {
    let in_flight = active(rules(3), true);
    let free = Job { holder: None, ..in_flight.clone() };
    vec![
        ("completed", Job { state: State::Completed, ..free.clone() }),
        ("cancelled, still held", Job { state: State::Cancelled, ..in_flight }),
        ("cancelled", Job { state: State::Cancelled, ..free.clone() }),
        ("discarded", Job { state: State::Discarded, ..free }),
    ]
}

fn running() -> Vec<(&'static str, Job)> {
    let started = active(rules(3), true);
    let spent = |failures, losses, interruptions| Job {
        spent: Spent { failures, losses, interruptions },
        ..started.clone()
    };
    let mut letters = spent(2, 0, 0);
    letters.rules.retry.on_exhaustion = OnExhaustion::DeadLetter;
    vec![
        ("handed over", active(rules(3), false)),
        ("handed over, once before in vain", Job { epoch: Epoch(2), ..active(rules(3), false) }),
        ("started", started.clone()),
        ("last attempt", spent(2, 0, 0)),
        ("last attempt, dead letter asked for", letters),
        ("one loss before", spent(0, 1, 0)),
        ("two losses before", spent(0, 2, 0)),
        ("three losses before", spent(0, 3, 0)),
        ("six losses before, isolated", Job { isolated: true, ..spent(0, 6, 0) }),
        ("interruption budget spent", spent(0, 0, Budgets::DEFAULT.interruptions)),
        ("`max_attempts: 1`, handed over", active(rules(1), false)),
        ("`max_attempts: 1`, started", active(rules(1), true)),
    ]
}

/// What becomes of the job, in the words of the page.
fn cell(job: &Job, event: Event<'_>) -> String {
    let step = match judged(job, event) {
        Ok(step) => step,
        Err(Refusal::Terminal(_)) => return "– ended".into(),
        Err(Refusal::WrongState(_)) => return "–".into(),
        Err(Refusal::Expired) => return "– expired".into(),
        Err(
            refusal @ (Refusal::Superseded { .. }
            | Refusal::NotHolder { .. }
            | Refusal::OtherAttempt { .. }),
        ) => panic!("decide does not fence: {refusal}"),
    };
    let mut said = vec![format!("**{}**", step.to)];
    match step.place {
        Place::Ready(Turn::Front) => said.push("front".into()),
        Place::Timer(_) => said.push("after the backoff".into()),
        Place::Ready(Turn::InOrder) | Place::Pending | Place::Active | Place::Ended => {}
    }
    match step.hold {
        Hold::Take(_) => said.push("held".into()),
        Hold::Keep(_) if step.to == State::Cancelled => said.push("still held".into()),
        Hold::Drop(outcome) => said.push(format!("attempt {}", outcome.as_str())),
        Hold::None | Hold::Keep(_) => {}
    }
    let rises = [
        ("epoch", step.next_epoch > job.epoch),
        ("life", step.life > job.life),
        ("failures", step.spent.failures > job.spent.failures),
        ("losses", step.spent.losses > job.spent.losses),
        ("interruptions", step.spent.interruptions > job.spent.interruptions),
    ];
    said.extend(rises.iter().filter(|(_, rises)| *rises).map(|(what, _)| format!("{what} + 1")));
    if step.isolated && !job.isolated {
        said.push("isolated".into());
    }
    if let Some(reason) = step.dead_letter {
        said.push(format!("dead letter `{}`", reason.as_str()));
    }
    if step.alarm.is_some() {
        said.push("alarm".into());
    }
    if step.answer != Answer::Accepted {
        said.push("reporter told: too late".into());
    }
    said.join(", ")
}

fn table(page: &mut String, heads: &[&str], rows: &[(String, Vec<String>)]) {
    writeln!(page, "| | {} |", heads.join(" | ")).unwrap();
    writeln!(page, "|---|{}", "---|".repeat(heads.len())).unwrap();
    for (name, cells) in rows {
        writeln!(page, "| {name} | {} |", cells.join(" | ")).unwrap();
    }
    page.push('\n');
}

fn job_table(page: &mut String, title: &str, subjects: &[(&str, Job)]) {
    writeln!(page, "### {title}\n").unwrap();
    let heads: Vec<_> = subjects.iter().map(|(name, _)| *name).collect();
    let rows: Vec<_> = events()
        .into_iter()
        .map(|(name, event)| {
            let cells = subjects.iter().map(|(_, job)| cell(job, event)).collect();
            (name.to_owned(), cells)
        })
        .collect();
    table(page, &heads, &rows);
}

fn liveness_table(page: &mut String) {
    let standings: Vec<_> = Liveness::ALL
        .into_iter()
        .flat_map(|liveness| Phase::ALL.map(|phase| Standing { phase, liveness }))
        .collect();
    let name = |standing: &Standing| {
        format!("{:?}, {:?}", standing.liveness, standing.phase).to_lowercase()
    };
    let heads: Vec<_> = standings.iter().map(name).collect();
    let heads: Vec<_> = heads.iter().map(String::as_str).collect();
    let rows: Vec<_> = WorkerEvent::ALL
        .into_iter()
        .map(|event| {
            let cells = standings.iter().map(|standing| match liveness::decide(*standing, event) {
                Ok(next) if next == *standing => "stays".into(),
                Ok(next) => format!("**{}**", name(&next)),
                Err(refusal) => format!("– {refusal}"),
            });
            (format!("{event:?}").to_lowercase(), cells.collect())
        })
        .collect();
    table(page, &heads, &rows);
}

fn lifecycle_table(page: &mut String) {
    let heads: Vec<_> = Stage::ALL.iter().map(|stage| format!("{stage:?}")).collect();
    let heads: Vec<_> = heads.iter().map(String::as_str).collect();
    let rows: Vec<_> = StageEvent::ALL
        .into_iter()
        .map(|event| {
            let cells = Stage::ALL.into_iter().map(|stage| {
                let (next, act) = lifecycle::decide(stage, event);
                match (next == stage, act) {
                    (true, lifecycle::Act::None) => "–".into(),
                    (true, act) => format!("{act:?}"),
                    (false, lifecycle::Act::None) => format!("**{next:?}**"),
                    (false, act) => format!("**{next:?}**, {act:?}"),
                }
            });
            (format!("{event:?}"), cells.collect())
        })
        .collect();
    table(page, &heads, &rows);
}

const HEAD: &str = "# State machines

Written by a test from what the rules decide (`UPDATE_DOCS=1 cargo test -p outlast-core`
rewrites it; a difference fails the test). Every pair of a state and an event is here.

Bold is where it goes; `–` means refused, and nothing changes.

## Jobs

Decided in `crates/core/src/job/decide.rs`. Reports are fenced first: one that names an
older epoch, or a worker that does not hold the attempt, is refused whatever the state.
The numbers are those of the default budgets (3 losses, 10 interruptions) and, unless the
column says otherwise, of a job with `max_attempts: 3`.

";

const LIVENESS: &str = "## Workers, as the server sees them

Decided in `crates/core/src/worker/liveness.rs`. Only `live, running` gets new work.

";

const LIFECYCLE: &str = "## Workers, as they see themselves

Decided in `crates/core/src/worker/lifecycle.rs`: the stage, and what the worker must do.

";

fn page() -> String {
    let mut page = HEAD.to_owned();
    job_table(&mut page, "Waiting", &waiting());
    job_table(&mut page, "Active", &running());
    job_table(&mut page, "Ended", &ended());
    page.push_str(LIVENESS);
    liveness_table(&mut page);
    page.push_str(LIFECYCLE);
    lifecycle_table(&mut page);
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

#[test]
fn every_state_and_every_event_is_in_the_table() {
    let named: Vec<_> = events().iter().map(|(_, event)| event.kind()).collect();
    for kind in EventKind::ALL {
        assert!(named.contains(&kind), "{kind:?}");
    }
    let subjects = [waiting(), running(), ended()].concat();
    for state in State::ALL {
        assert!(subjects.iter().any(|(_, job)| job.state == state), "{state}");
    }
}

#[test]
fn page_of_the_state_machines_says_what_the_rules_decide() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/inside/state-machine.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let first = kept.lines().zip(page.lines()).find(|(kept, page)| kept != page);
    assert!(
        kept == page,
        "docs/inside/state-machine.md differs from the rules, first at {first:?}; \
         if the change is meant, UPDATE_DOCS=1 cargo test -p outlast-core rewrites it"
    );
}
