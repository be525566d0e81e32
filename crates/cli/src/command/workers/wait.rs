//! `--wait` of orders to workers: until all of them have done what the order says.
//!
//! The order is given before, and holds whether or not anybody waits: Ctrl-C detaches, and the same
//! command attaches again.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use outlast_cli_core::client::Client;
use outlast_cli_core::clock::{self, Moment};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{at, escape, say, span, text_at};
use outlast_core::evidence::EvidenceCode;
use outlast_core::worker::order;
use serde_json::{Value, json};

use super::groups::{deadline_of, held_for};
use super::order::show;
use super::{all, lives};
use crate::command::follow::AWAY_MAX;

/// How soon another worker follows one in the same process.
const HEIR_COMES_WITHIN: Duration = Duration::from_millis(order::HEIR_COMES_WITHIN.0);

/// For how long a worker that vanished under a drain is spoken of when the drain is ordered again.
const OF_LATE_S: f64 = 3600.0;

/// Time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// The order that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Quiet,
    Resume,
    Drain,
}

impl Verb {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Resume => "resume",
            Self::Drain => "drain",
        }
    }

    const fn done(self) -> &'static str {
        match self {
            Self::Quiet => "quiet, and hold no attempt",
            Self::Resume => "running",
            Self::Drain => "drained",
        }
    }
}

/// The workers that are waited for.
pub(super) struct Awaited {
    pub(super) ids: Vec<String>,
    /// Those that vanished under the same order before, in words.
    pub(super) vanished: Vec<String>,
}

/// How far a worker has come.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Left,
    Done,
    /// It ended in another way, in these words.
    Vanished(String),
}

/// Waits for workers. `limit` is how long.
pub(super) async fn until_done(
    client: &Client,
    verb: Verb,
    Awaited { ids, vanished }: Awaited,
    limit: Option<Duration>,
) -> Result<Exit, Failure> {
    let (workers, heirs_due) = (BTreeMap::new(), BTreeMap::new());
    let begun = clock::moment();
    let waiting = Waiting { verb, begun, limit, workers, ids, vanished, heirs_due };
    tokio::select! {
        ended = waiting.run(client) => ended,
        _ = tokio::signal::ctrl_c() => {
            say("\ndetached: the order holds; the same command attaches again\n");
            Ok(Exit::WaitTimedOut)
        }
    }
}

struct Waiting {
    verb: Verb,
    begun: Moment,
    limit: Option<Duration>,
    /// How each was last seen.
    workers: BTreeMap<String, Value>,
    ids: Vec<String>,
    /// Those that vanished before, in words.
    vanished: Vec<String>,
    /// Since when workers are known to have ended that another one may follow.
    heirs_due: BTreeMap<String, Moment>,
}

impl Waiting {
    async fn run(mut self, client: &Client) -> Result<Exit, Failure> {
        let mut line = Line::default();
        let mut away: Option<Moment> = None;
        loop {
            match self.look(client).await {
                Ok(()) => away = None,
                Err(failure) if failure.exit == Exit::Unreachable => {
                    let now = clock::moment();
                    if away.is_none() {
                        line.end();
                        say(&format!("{}; waiting for the server\n", escape(&failure.message)));
                    }
                    if now.since(*away.get_or_insert(now)) > AWAY_MAX {
                        return Err(failure);
                    }
                }
                Err(failure) => return Err(failure),
            }
            let left = self.left();
            if left.is_empty() && away.is_none() {
                line.end();
                return self.end();
            }
            let waited = clock::moment().since(self.begun);
            let rest = self.limit.map(|limit| limit.saturating_sub(waited));
            if rest == Some(Duration::ZERO) {
                line.end();
                return Err(self.timed_out(&left));
            }
            line.show(&progress(&left, rest));
            tokio::time::sleep(rest.unwrap_or(PAUSE).min(PAUSE)).await;
        }
    }

    async fn look(&mut self, client: &Client) -> Result<(), Failure> {
        // One list, however many are waited for, and each that has ended since.
        let live = all(client, &[("live", Some("true".to_owned()))]).await?;
        let mut listed: BTreeMap<String, Value> =
            live.into_iter().map(|it| (text_at(&it, "id"), it)).collect();
        for id in &self.ids {
            let known = self.workers.entry(id.clone()).or_insert(Value::Null);
            let found = match listed.remove(id) {
                // What has ended stays as it ended, also when it is forgotten.
                None if !lives(known) => continue,
                None => match show(client, id).await {
                    Err(failure) if failure.exit == Exit::NotFound => None,
                    shown => Some(shown?),
                },
                found => found,
            };
            match found {
                Some(worker) => *known = worker,
                None => {
                    *known = json!({"id": id, "name": text_at(known, "name"),
                    "state": "stopped", "ended": "forgotten", "evidence": "it is not listed"})
                }
            }
        }
        self.look_for_heirs(client).await
    }

    /// Goes on with the worker that follows one in the same process: the order holds for it.
    async fn look_for_heirs(&mut self, client: &Client) -> Result<(), Failure> {
        let now = clock::moment();
        let ended: Vec<Value> =
            self.workers.values().filter(|it| may_have_heir(it)).cloned().collect();
        for worker in ended {
            let id = text_at(&worker, "id");
            let since = *self.heirs_due.entry(id.clone()).or_insert(now);
            if now.since(since) > HEIR_COMES_WITHIN {
                continue;
            }
            let follows = match show(client, &id).await {
                Err(failure) if failure.exit == Exit::NotFound => continue,
                shown => text_at(&shown?, "followed_by"),
            };
            if follows == "-" {
                continue;
            }
            let heir = show(client, &follows).await?;
            self.heirs_due.remove(&id);
            self.workers.remove(&id);
            self.ids.retain(|one| *one != id);
            if !self.ids.contains(&follows) {
                self.ids.push(follows.clone());
            }
            self.workers.insert(follows, heir);
        }
        Ok(())
    }

    /// Whether another one may still follow a worker.
    fn awaits_heir(&self, worker: &Value) -> bool {
        let since = self.heirs_due.get(&text_at(worker, "id"));
        since.is_some_and(|since| clock::moment().since(*since) <= HEIR_COMES_WITHIN)
    }

    fn left(&self) -> Vec<&Value> {
        let is_left = |worker: &&Value| match how_far(self.verb, worker) {
            Progress::Left => true,
            Progress::Done => false,
            Progress::Vanished(_) => self.awaits_heir(worker),
        };
        self.workers.values().filter(is_left).collect()
    }

    /// Says what became of all, once none is left.
    fn end(&self) -> Result<Exit, Failure> {
        let vanished: Vec<String> = self
            .workers
            .values()
            .filter_map(|worker| match how_far(self.verb, worker) {
                Progress::Vanished(how) => Some(format!("{}: {how}", text_at(worker, "name"))),
                Progress::Left | Progress::Done => None,
            })
            .collect();
        let all = self.workers.len() + self.vanished.len();
        let vanished: Vec<String> = self.vanished.iter().cloned().chain(vanished).collect();
        if vanished.is_empty() {
            say(&format!("{} {}\n", count(all, "worker"), self.verb.done()));
            return Ok(Exit::Ok);
        }
        Err(have_vanished(all, &vanished))
    }

    fn timed_out(&self, left: &[&Value]) -> Failure {
        let limit = self.limit.map(span).unwrap_or_default();
        let message = format!("after {limit}: {}", progress(left, None));
        Failure::new(Exit::WaitTimedOut, message)
            .with_hint("the order holds; the same command waits again")
    }
}

/// Says which of `all` workers ended in another way than was ordered.
pub(super) fn have_vanished(all: usize, vanished: &[String]) -> Failure {
    let (gone, all) = (vanished.len(), count(all, "worker"));
    let hint = "`outlast workers show` says how each ended; their jobs run elsewhere";
    Failure::failed(format!("{gone} of {all} vanished\n{}", vanished.join("\n"))).with_hint(hint)
}

/// Says which workers were ordered to drain and ended in another way, of late; none that another
/// engine has followed.
pub(super) fn vanished_lately(workers: &[Value]) -> Vec<String> {
    let is_of_late = |worker: &Value| {
        let age = at(worker, "heartbeat_age_seconds").and_then(Value::as_f64);
        age.is_some_and(|age| age <= OF_LATE_S)
    };
    let ended = workers.iter().filter(|it| !lives(it) && text_at(it, "ordered") == "drain");
    // One that had ended by then was not killed under it.
    let under_it = |it: &Value| text_at(it, "ordered_at") <= text_at(it, "updated");
    let is_followed = |it: &Value| text_at(it, "followed_by") != "-";
    let ended = ended.filter(|it| is_of_late(it) && under_it(it) && !is_followed(it));
    let vanished = ended.filter_map(|worker| match how_far(Verb::Drain, worker) {
        Progress::Vanished(how) => Some(format!("{}: {how}", text_at(worker, "name"))),
        Progress::Left | Progress::Done => None,
    });
    vanished.collect()
}

/// Whether the process of a worker that has ended may go on under another identity: with another engine,
/// or after its lease was over.
fn may_have_heir(worker: &Value) -> bool {
    let code = text_at(worker, "evidence_code");
    match text_at(worker, "state").as_str() {
        "stopped" => code == EvidenceCode::EngineKilled.as_str(),
        "lapsed" => code != EvidenceCode::WorkerKilled.as_str(),
        _ => false,
    }
}

fn how_far(verb: Verb, worker: &Value) -> Progress {
    let (state, ended) = (text_at(worker, "state"), text_at(worker, "ended"));
    let holds = at(worker, "in_flight").and_then(Value::as_u64).unwrap_or(0) > 0;
    match (verb, state.as_str(), ended.as_str()) {
        (Verb::Drain, "stopped", "drained") | (Verb::Resume, "running", _) => Progress::Done,
        (Verb::Quiet, "quiet" | "draining", _) if !holds => Progress::Done,
        (Verb::Quiet, "stopped", "drained") => Progress::Done,
        (_, "stopped" | "lapsed", _) => {
            Progress::Vanished(format!("{ended}: {}", text_at(worker, "evidence")))
        }
        _ => Progress::Left,
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// What is left, and until when.
fn progress(left: &[&Value], rest: Option<Duration>) -> String {
    let attempts: u64 = left.iter().filter_map(|worker| at(worker, "in_flight")?.as_u64()).sum();
    let attempts = count(usize::try_from(attempts).unwrap_or(usize::MAX), "attempt");
    let mut text = format!("{} left, {attempts} left", count(left.len(), "worker"));
    if let Some(longest) = left.iter().filter_map(|worker| held_for(worker)).max() {
        text = format!("{text}, longest {}", span(longest));
    }
    // That of the drain, if it is known; else the end of the wait.
    let of_drain = left.iter().filter_map(|worker| deadline_of(worker)).max();
    if let Some(at) = of_drain.or_else(|| Some(clock::now() + rest?)) {
        text = format!("{text}, deadline {}", at.strftime("%H:%M:%SZ"));
    }
    text
}

/// The line that shows progress: rewritten on a terminal, else one for each change.
#[derive(Debug, Default)]
struct Line {
    shown: String,
}

impl Line {
    fn show(&mut self, text: &str) {
        if std::io::stderr().is_terminal() {
            let mut stderr = std::io::stderr().lock();
            // A terminal that is gone is none of the order's business.
            let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
            text.clone_into(&mut self.shown);
            return;
        }
        // The length of the longest attempt changes all the time.
        let (counts, _) = text.split_once(", longest").unwrap_or((text, ""));
        if self.shown != counts {
            say(&format!("{text}\n"));
            counts.clone_into(&mut self.shown);
        }
    }

    fn end(&mut self) {
        if std::io::stderr().is_terminal() && !self.shown.is_empty() {
            say("\n");
            self.shown.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_done_as_the_order_says_or_has_vanished() {
        let worker = |state: &str, ended: Option<&str>, held: u64| json!({"state": state, "ended": ended, "in_flight": held, "evidence": "e"});
        let killed = || Progress::Vanished("killed: e".to_owned());
        for (verb, state, ended, held, expected) in [
            (Verb::Drain, "running", None, 0, Progress::Left),
            (Verb::Drain, "draining", None, 0, Progress::Left),
            (Verb::Drain, "suspect", None, 0, Progress::Left),
            (Verb::Drain, "stopped", Some("drained"), 0, Progress::Done),
            (Verb::Drain, "stopped", Some("killed"), 0, killed()),
            (Verb::Drain, "lapsed", Some("lapsed"), 1, Progress::Vanished("lapsed: e".to_owned())),
            (Verb::Quiet, "quiet", None, 1, Progress::Left),
            (Verb::Quiet, "quiet", None, 0, Progress::Done),
            (Verb::Quiet, "stopped", Some("drained"), 0, Progress::Done),
            (Verb::Quiet, "stopped", Some("killed"), 0, killed()),
            (Verb::Resume, "quiet", None, 0, Progress::Left),
            (Verb::Resume, "running", None, 3, Progress::Done),
            (Verb::Resume, "stopped", Some("killed"), 0, killed()),
        ] {
            assert_eq!(how_far(verb, &worker(state, ended, held)), expected, "{verb:?} {state}");
        }
    }

    #[test]
    fn progress_adds_up_what_is_left() {
        let worker = json!({"in_flight": 2, "last_heartbeat": "2026-11-26T10:05:00Z",
            "heartbeat_age_seconds": 1.0, "oldest_claim": "2026-11-26T10:01:00Z"});
        let other = json!({"in_flight": 0, "oldest_claim": null});
        assert_eq!(
            progress(&[&worker, &other], None),
            "2 workers left, 2 attempts left, longest 4m01s"
        );
        assert_eq!(progress(&[&other], None), "1 worker left, 0 attempts left");
        let drains = json!({"state": "draining", "in_flight": 1, "updated": "2026-11-26T10:05:00Z",
            "about": {"shutdown_timeout_seconds": 90.5}});
        assert_eq!(
            progress(&[&drains], Some(Duration::from_secs(5))),
            "1 worker left, 1 attempt left, deadline 10:06:30Z"
        );
    }
}
