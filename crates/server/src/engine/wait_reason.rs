//! Why a job waits, in words that an operator can act on.

pub(crate) mod limits;
pub(crate) mod shares;

use std::collections::BTreeMap;

use outlast_core::selector::Requirement;
use outlast_core::time::Timestamp;
use outlast_store::command::{ClassKey, Route};

use crate::clock::boot_time;
use crate::engine::asked::Asked;
use crate::engine::fleet::{Crew, Crews};
use crate::engine::profile::{Misfit, misfit_words};
use crate::engine::session_facts::Condition;
use crate::engine::shared_state::SharedState;

/// Whether any worker may take jobs of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eligible {
    /// Some worker will, in turn.
    Yes,
    /// The queue is paused.
    Paused,
    /// The workers that can have lost their connection and may come back, or do not poll at another
    /// server: undecided.
    Away,
    /// No live worker of any server can.
    No,
}

/// Returns why a claimable job waits that is stored in this class, as far as it is not for a limit.
/// One that must run alone is claimed in another class, which asks for the same workers.
pub(crate) fn reason(key: &ClassKey, runs_alone: bool, shared: &SharedState) -> String {
    match eligible(key, shared) {
        Eligible::Yes if runs_alone => {
            "waits for a worker that holds nothing else: two workers died under it".into()
        }
        Eligible::Yes => "waits for its turn".into(),
        Eligible::Paused => format!("queue {} is paused", key.queue),
        Eligible::Away | Eligible::No => lack(key, shared),
    }
}

/// Judges whether any live worker, of whatever server, may take jobs of the class.
pub(crate) fn eligible(key: &ClassKey, shared: &SharedState) -> Eligible {
    if shared.is_paused(&key.queue) {
        return Eligible::Paused;
    }
    let asked = shared.asked(key);
    let best = shared.fleet.crews().best(&asked);
    if best == Some(Condition::Active) {
        return Eligible::Yes;
    }
    if asked.is_for_plain_clients()
        && shared.long_polls.serve(&key.queue, key.tenant.as_deref(), boot_time())
    {
        return Eligible::Yes;
    }
    match best {
        Some(Condition::Away | Condition::NotPollingThere(_)) => Eligible::Away,
        _ => Eligible::No,
    }
}

/// Returns which live workers there are and why none takes jobs of the class.
pub(crate) fn lack(key: &ClassKey, shared: &SharedState) -> String {
    let (asked, crews) = (shared.asked(key), shared.fleet.crews());
    let lack = lack_of(&asked, &crews, shared.store_time());
    let clients = if clients_lack_labels(&asked, shared) {
        format!(", clients that fetch from queue {} have no labels", key.queue)
    } else {
        String::new()
    };
    format!("no eligible worker: {lack}{clients}")
}

/// Whether a live worker would take jobs of the class if it offered their action.
pub(crate) fn lacks_action(key: &ClassKey, shared: &SharedState) -> bool {
    let (asked, crews) = (shared.asked(key), shared.fleet.crews());
    let (able, misfits) = crews.judge(&asked);
    matches!(key.route, Route::Action { .. })
        && able.iter().all(|crew| crew.count() == 0)
        && misfits.iter().any(|(misfit, _)| *misfit == Misfit::Type)
}

/// Whether plain clients would take jobs of the class if they had labels.
fn clients_lack_labels(asked: &Asked<'_>, shared: &SharedState) -> bool {
    let key = asked.key;
    key.route == Route::Plain
        && !asked.takes_unlabelled()
        && shared.long_polls.serve(&key.queue, key.tenant.as_deref(), boot_time())
}

fn lack_of(asked: &Asked<'_>, crews: &Crews, now: Option<Timestamp>) -> String {
    let key = asked.key;
    let wanted = match &key.route {
        Route::Action { runtime, .. } => format!("runtime {runtime}"),
        Route::Plain => format!("a handler for {}", key.job_type),
    };
    let (able, misfits) = crews.judge(asked);
    // Workers of another kind matter only if there are none of the right kind.
    let right_kind = |misfit: &Misfit| *misfit != Misfit::Role;
    let some_fit_better = misfits.iter().any(|(misfit, _)| right_kind(misfit));
    let live: Vec<&Crew> = able.iter().copied().filter(|crew| crew.count() > 0).collect();
    if !live.is_empty() {
        return inactive(&live, &wanted, now);
    }
    let mut why: Vec<String> = misfits
        .into_iter()
        .filter(|(misfit, _)| right_kind(misfit) && some_fit_better)
        .map(|(misfit, count)| match misfit {
            Misfit::Requires | Misfit::QueueRequires => unmatched(asked, misfit, crews, count),
            Misfit::Type => untyped(asked, crews, count),
            misfit => format!("{count} {}", misfit_words(misfit, asked)),
        })
        .collect();
    if why.is_empty() {
        why.push(format!("no live worker has {wanted}"));
    }
    let gone: usize = able.iter().map(|crew| crew.gone).sum();
    if gone > 0 {
        let (workers, are) = if gone == 1 { ("worker", "is") } else { ("workers", "are") };
        let age = age(&able, now);
        why.push(format!("{gone} {workers} with {wanted} {are} inactive{age}"));
    }
    why.join(", ")
}

/// Says which live workers have no such action or handler, and what they lack for it if they say so.
fn untyped(asked: &Asked<'_>, crews: &Crews, count: usize) -> String {
    let action = &asked.key.job_type;
    let fit = crews.fit(asked);
    let mut lacking = crews.crews.iter().zip(fit.iter()).filter_map(|(crew, fit)| {
        let is_one = *fit == Err(Misfit::Type) && crew.count() > 0;
        let missing = crew.profile.lacking.get(action).filter(|_| is_one)?;
        Some((crew, missing))
    });
    let words = format!("{count} {}", misfit_words(Misfit::Type, asked));
    let Some((crew, missing)) = lacking.next() else { return words };
    let name = crew.name.as_deref().unwrap_or("a worker");
    let also = lacking.map(|(crew, _)| crew.count()).sum::<usize>() + crew.count() - 1;
    let also = if also > 0 { format!(", and so do {also} more") } else { String::new() };
    format!("{words} ({name} lacks {missing}{also})")
}

/// Says what live workers lack that could otherwise run it: the requirements that none of them
/// meets, or all of them where each is met by some.
fn unmatched(asked: &Asked<'_>, misfit: Misfit, crews: &Crews, count: usize) -> String {
    let fit = crews.fit(asked);
    let lacking: Vec<&Crew> = crews
        .crews
        .iter()
        .zip(fit.iter())
        .filter(|(crew, fit)| **fit == Err(misfit) && crew.count() > 0)
        .map(|(crew, _)| crew)
        .collect();
    let (requires, by_whom) = match misfit {
        Misfit::QueueRequires => {
            (&asked.by_queue.requires, format!(" (required by queue {})", asked.key.queue))
        }
        _ => (&asked.key.placement.requires, String::new()),
    };
    let unmet = |requirement: &&Requirement| {
        !lacking.iter().any(|crew| requirement.holds(crew.profile.label()))
    };
    let unmet: Vec<&Requirement> = requires.requirements().filter(unmet).collect();
    let (all, named) = match unmet.is_empty() {
        true => ("all of ", requires.requirements().collect()),
        false => ("", unmet),
    };
    let has_it = named.iter().all(|it| it.wants_label());
    let has = if has_it { "has" } else { "matches" };
    let named = named.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match count {
        1 if has_it => format!("1 live worker without {named}{by_whom}"),
        1 => format!("1 live worker, which does not match {named}{by_whom}"),
        2 => format!("2 live workers, neither {has} {all}{named}{by_whom}"),
        _ => format!("{count} live workers, none {has} {all}{named}{by_whom}"),
    }
}

/// Describes the live workers that could run it.
fn inactive(able: &[&Crew], wanted: &str, now: Option<Timestamp>) -> String {
    let mut states: BTreeMap<Condition, usize> = BTreeMap::new();
    for (condition, count) in able.iter().flat_map(|crew| &crew.live) {
        let condition = match *condition {
            Condition::NotPollingThere(age) => Condition::NotPolling(age),
            condition => condition,
        };
        *states.entry(condition).or_default() += count;
    }
    let count: usize = states.values().sum();
    if let (1, Some((Condition::NotPolling(age), _))) = (count, states.first_key_value()) {
        let name = able.iter().find_map(|crew| crew.name.as_deref()).unwrap_or("a worker");
        return format!("{name} beats but has not polled for {} s", age.as_secs());
    }
    let (workers, have) = if count == 1 { ("worker", "has") } else { ("workers", "have") };
    let all = match count {
        1 => "",
        2 => "both ",
        _ => "all ",
    };
    let listed = match states.len() {
        1 => states.keys().map(|one| format!("{all}{}", words(*one))).collect::<String>(),
        _ => {
            let each = states.iter().map(|(one, count)| format!("{count} {}", words(*one)));
            each.collect::<Vec<_>>().join(", ")
        }
    };
    format!("{count} {workers} {have} {wanted}, {listed}{}", age(able, now))
}

fn age(crews: &[&Crew], now: Option<Timestamp>) -> String {
    let latest = crews.iter().filter_map(|crew| crew.last_heartbeat).max();
    latest.zip(now).map_or_else(String::new, |(latest, now)| {
        format!(", last heartbeat {} s ago", now.since(latest).as_secs())
    })
}

const fn words(condition: Condition) -> &'static str {
    match condition {
        Condition::Active => "running",
        Condition::Away => "not connected",
        Condition::NotPolling(_) | Condition::NotPollingThere(_) => "not polling",
        Condition::Quiet => "quiet",
        Condition::Unhealthy => "unhealthy",
        Condition::Draining => "draining",
        Condition::Gone => "inactive",
    }
}
