//! Rules that find what an operator should act on. The dashboard's first page and `outlast doctor` show the same
//! findings, in the same words. Each rule has the name of its alert rule (`deploy/prometheus`) and a heading in
//! `docs/operate/findings.md`.

use crate::time::Span;
use crate::words::{Lasting, counted};

/// How long the oldest job of a queue may wait.
pub const OLD: Span = Span::from_secs(900);
/// How long the oldest end of a job may wait for its workflow.
const WORKFLOW_LAG: Span = Span::from_secs(30);
/// Most findings of one rule: of more, the rest look the same.
pub const OF_ONE_MAX: usize = 5;
/// How many attempts must have failed before a share of them says something.
const FAILED_MIN: u64 = 10;
/// One of so many attempts may fail.
const FAILS_ONE_IN: u64 = 5;

/// A rule that finds one kind of problem. There is an alert of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// No server answers.
    ServerDown,
    /// The store does not answer.
    StoreDown,
    /// Jobs wait, and no worker takes any.
    NoWorkers,
    /// No worker can run some jobs.
    NobodyEligible,
    /// Workflows do not move on.
    WorkflowsStuck,
    /// Attempts were lost with their workers.
    JobsLost,
    /// Workers are silent, late, or were given up.
    WorkersLost,
    /// Workers take no jobs although they live.
    WorkerUnhealthy,
    /// Jobs have waited for long in a paused queue.
    QueuePaused,
    /// Jobs have waited for long.
    BacklogOld,
    /// More jobs come than go.
    BacklogGrows,
    /// Many attempts fail.
    JobsFail,
    /// Jobs became dead letters.
    DeadLetters,
    /// Fires of schedules were late.
    SchedulesLate,
    /// Fires of schedules were left out.
    SchedulesSkip,
    /// A limit counted wrongly.
    LimitMiscounted,
    /// Workers that were given up live on.
    HeartbeatsRefused,
    /// Commits take long.
    CommitsSlow,
    /// The server has too little processor time.
    ServerSlow,
}

impl Rule {
    /// Every rule, the worst ones first.
    pub const ALL: [Self; 19] = [
        Self::ServerDown,
        Self::StoreDown,
        Self::NoWorkers,
        Self::NobodyEligible,
        Self::WorkflowsStuck,
        Self::JobsLost,
        Self::WorkersLost,
        Self::WorkerUnhealthy,
        Self::QueuePaused,
        Self::BacklogOld,
        Self::BacklogGrows,
        Self::JobsFail,
        Self::DeadLetters,
        Self::SchedulesLate,
        Self::SchedulesSkip,
        Self::LimitMiscounted,
        Self::HeartbeatsRefused,
        Self::CommitsSlow,
        Self::ServerSlow,
    ];

    /// Returns the name that it shares with its alert.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ServerDown => "OutlastServerDown",
            Self::StoreDown => "OutlastStoreDown",
            Self::NoWorkers => "OutlastNoWorkers",
            Self::NobodyEligible => "OutlastNobodyEligible",
            Self::WorkflowsStuck => "OutlastWorkflowsStuck",
            Self::JobsLost => "OutlastJobsLost",
            Self::WorkersLost => "OutlastWorkersLost",
            Self::WorkerUnhealthy => "OutlastWorkerUnhealthy",
            Self::QueuePaused => "OutlastQueuePaused",
            Self::BacklogOld => "OutlastBacklogOld",
            Self::BacklogGrows => "OutlastBacklogGrows",
            Self::JobsFail => "OutlastJobsFail",
            Self::DeadLetters => "OutlastDeadLetters",
            Self::SchedulesLate => "OutlastSchedulesLate",
            Self::SchedulesSkip => "OutlastSchedulesSkip",
            Self::LimitMiscounted => "OutlastLimitMiscounted",
            Self::HeartbeatsRefused => "OutlastHeartbeatsRefused",
            Self::CommitsSlow => "OutlastCommitsSlow",
            Self::ServerSlow => "OutlastServerSlow",
        }
    }

    /// Returns the rule of this name, if there is one.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// Whether work stands still.
    #[must_use]
    pub const fn stands_still(self) -> bool {
        matches!(
            self,
            Self::ServerDown
                | Self::StoreDown
                | Self::NoWorkers
                | Self::NobodyEligible
                | Self::WorkflowsStuck
        )
    }

    /// Whether work stands still or was lost.
    #[must_use]
    pub const fn is_worst(self) -> bool {
        self.stands_still() || matches!(self, Self::JobsLost)
    }

    /// Whether only alerts can find this. The server cannot: it is down, or does not keep numbers for long enough.
    #[must_use]
    pub const fn is_for_alerts_only(self) -> bool {
        matches!(self, Self::ServerDown | Self::BacklogGrows | Self::CommitsSlow | Self::ServerSlow)
    }

    /// Returns the usual advice.
    #[must_use]
    pub const fn fix(self) -> &'static str {
        match self {
            Self::ServerDown => "start the server; workers reconnect by themselves",
            Self::StoreDown => {
                "see what `outlast doctor` finds; nothing that was acknowledged is lost"
            }
            Self::NoWorkers => "start workers, or resume those that are quiet",
            Self::NobodyEligible => "start a worker that has what they ask for, or cancel them",
            Self::WorkflowsStuck => "the log of the servers says why",
            Self::JobsLost => "their jobs run again; see which worker or type they have in common",
            Self::WorkersLost => "see whether its machine and network are well",
            Self::WorkerUnhealthy => "repair what is named; it comes back by itself",
            Self::QueuePaused => "resume it when what it was paused for is over",
            Self::BacklogOld => "more workers or slots, or a limit that lets more of them run",
            Self::BacklogGrows => "more workers or slots, or fewer jobs",
            Self::JobsFail => "see which types fail, and with which error",
            Self::DeadLetters => "look at what they have in common, repair it, then retry them",
            Self::SchedulesLate => "see whether the store answers, and whether servers have time",
            Self::SchedulesSkip => {
                "a job that runs for longer than the time between two fires needs a time limit or another overlap"
            }
            Self::LimitMiscounted => {
                "it is corrected; report it as a bug unless tables were changed by hand"
            }
            Self::HeartbeatsRefused => "look for frozen hosts and for cuts of the network",
            Self::CommitsSlow => "look at the disk of the store",
            Self::ServerSlow => "give the server more processor time",
        }
    }

    /// Returns the page of the dashboard to look at, from its root.
    #[must_use]
    pub const fn page(self) -> &'static str {
        match self {
            Self::ServerDown | Self::StoreDown | Self::CommitsSlow | Self::ServerSlow => "servers",
            Self::NoWorkers
            | Self::WorkersLost
            | Self::WorkerUnhealthy
            | Self::HeartbeatsRefused => "workers",
            Self::NobodyEligible => "waiting",
            Self::WorkflowsStuck => "workflows?status=running",
            Self::JobsLost => "losses",
            Self::QueuePaused | Self::BacklogOld | Self::BacklogGrows => "queues",
            Self::JobsFail | Self::DeadLetters => "failures",
            Self::SchedulesLate | Self::SchedulesSkip => "schedules",
            Self::LimitMiscounted => "limits",
        }
    }
}

/// A problem that an operator should act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// By which rule.
    pub rule: Rule,
    /// The problem, in one sentence.
    pub what: String,
    /// On what evidence, and since when.
    pub evidence: String,
    /// How to repair it.
    pub fix: String,
    /// Where to look, from the root of the dashboard.
    pub page: String,
}

impl Finding {
    fn of(rule: Rule, what: String, evidence: String) -> Self {
        let (fix, page) = (rule.fix().to_owned(), rule.page().to_owned());
        Self { rule, what, evidence, fix, page }
    }
}

/// What findings follow from.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What is wrong with the store, if something is: in words, and as it says itself.
    pub store: Option<(String, String)>,
    /// How many jobs a worker may claim.
    pub waiting: u64,
    /// How many workers are in which state.
    pub workers: WorkerCounts,
    /// Jobs that no worker can run.
    pub nowhere: Vec<Nowhere>,
    /// Workers that are in trouble.
    pub troubled: Vec<TroubledWorker>,
    /// Queues with jobs that wait.
    pub queues: Vec<WaitingQueue>,
    /// How long the oldest end of a job has waited for its workflow to move on.
    pub workflow_lag: Span,
    /// Attempts that were lost.
    pub lost: Recent,
    /// Jobs that became dead letters.
    pub letters: Recent,
    /// Fires of schedules that were left out.
    pub skips: Recent,
    /// Fires of schedules that were late.
    pub late_fires: Recent,
    /// Counts of limits that were wrong.
    pub recounts: Recent,
    /// Heartbeats of workers that had been given up.
    pub refused_beats: Recent,
    /// Attempts that failed.
    pub failed: Recent,
    /// Attempts that completed in the same time.
    pub completed: u64,
}

/// How many workers are in which state.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerCounts {
    /// They take jobs.
    pub running: u64,
    /// They take none.
    pub quiet: u64,
    /// They finish their jobs and then stop.
    pub draining: u64,
    /// Their connections are gone.
    pub suspect: u64,
}

/// Jobs of one queue and type that no worker can run.
#[derive(Clone, Debug)]
pub struct Nowhere {
    /// How many.
    pub jobs: u64,
    /// Of which type, if they are of one.
    pub job_type: Option<String>,
    /// In which queue.
    pub queue: String,
    /// Why.
    pub reason: String,
    /// Whether workers that could run them do not offer their action.
    pub lacks_action: bool,
}

/// A worker that is in trouble.
#[derive(Clone, Debug)]
pub struct TroubledWorker {
    /// Its id, as a page is called by it.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// What it is in.
    pub trouble: Trouble,
}

/// What is the matter with a worker.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// Its connection is gone, and nothing was heard of it for this long.
    Silent {
        /// For how long.
        last_heard: Span,
        /// How many attempts it holds.
        in_flight: u64,
    },
    /// Its connection lives on, and its heartbeats are late.
    Late {
        /// For how long nothing was heard of it.
        last_heard: Span,
        /// After how long it is given up.
        lease: Span,
    },
    /// It beats, and its engine asks for nothing.
    Deaf(Span),
    /// Its own checks fail.
    Unhealthy {
        /// What they say.
        reason: String,
        /// For how long.
        since: Span,
    },
}

/// A queue with jobs that wait.
#[derive(Clone, Debug)]
pub struct WaitingQueue {
    /// Its name, and as it stands in a path.
    pub name: (String, String),
    /// Whether no worker is given its jobs.
    pub paused: bool,
    /// How many wait.
    pub available: u64,
    /// How long the oldest has.
    pub oldest: Span,
}

/// How often something happened lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// How often it did.
    pub count: u64,
    /// On what evidence the latest time, if that is known.
    pub last: Option<String>,
    /// Whether it was no more often.
    pub is_whole: bool,
    /// In how long.
    pub over: Span,
}

impl Recent {
    /// Counts it in words. There may have been more than is known.
    fn words(&self, one: &str, many: &str) -> String {
        let counted = counted(self.count, one, many);
        let least = if self.is_whole { "" } else { "at least " };
        format!("{least}{counted} in the last {}", Lasting(self.over))
    }

    fn evidence(&self) -> String {
        self.last.as_ref().map(|last| format!("The latest: {last}")).unwrap_or_default()
    }
}

/// Returns what needs someone, worst first.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    if let Some((what, evidence)) = &facts.store {
        let evidence = format!("The store says: {evidence}");
        all.push(Finding::of(Rule::StoreDown, what.clone(), evidence));
    }
    all.extend(no_workers(facts));
    all.extend(facts.nowhere.iter().take(OF_ONE_MAX).map(nowhere));
    all.extend(stuck_workflows(facts));
    let Facts { lost, letters, skips, late_fires, recounts, refused_beats, .. } = facts;
    all.extend(recently(Rule::JobsLost, lost, "attempt was lost", "attempts were lost"));
    all.extend(facts.troubled.iter().take(OF_ONE_MAX).map(troubled));
    all.extend(facts.queues.iter().filter(|queue| queue.oldest > OLD).take(OF_ONE_MAX).map(old));
    all.extend(failing(facts));
    let (one, many) = ("job became a dead letter", "jobs became dead letters");
    all.extend(recently(Rule::DeadLetters, letters, one, many));
    let (one, many) = ("fire of a schedule was late", "fires of schedules were late");
    all.extend(recently(Rule::SchedulesLate, late_fires, one, many));
    let (one, many) = ("fire of a schedule was left out", "fires of schedules were left out");
    all.extend(recently(Rule::SchedulesSkip, skips, one, many));
    let (one, many) = ("limit counted wrongly", "limits counted wrongly");
    all.extend(recently(Rule::LimitMiscounted, recounts, one, many));
    let (one, many) = (
        "heartbeat of a worker that was given up was refused",
        "heartbeats of workers that were given up were refused",
    );
    all.extend(recently(Rule::HeartbeatsRefused, refused_beats, one, many));
    all.sort_by_key(|finding| !finding.rule.is_worst());
    all
}

fn recently(rule: Rule, of: &Recent, one: &str, many: &str) -> Option<Finding> {
    (of.count > 0).then(|| Finding::of(rule, of.words(one, many), of.evidence()))
}

fn no_workers(facts: &Facts) -> Option<Finding> {
    let WorkerCounts { running, quiet, draining, suspect } = facts.workers;
    (facts.waiting > 0 && running == 0).then(|| {
        let waiting = counted(facts.waiting, "job waits", "jobs wait");
        let evidence = format!(
            "live workers: none running, {quiet} quiet, {draining} draining, {suspect} suspect"
        );
        Finding::of(Rule::NoWorkers, format!("{waiting}, and no worker takes jobs"), evidence)
    })
}

fn nowhere(jobs: &Nowhere) -> Finding {
    let Nowhere { job_type, queue, reason, lacks_action, .. } = jobs;
    let of = job_type.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
    let what =
        format!("{}{of} in queue {queue} can run nowhere", counted(jobs.jobs, "job", "jobs"));
    let found = Finding::of(Rule::NobodyEligible, what, reason.clone());
    if !lacks_action {
        return found;
    }
    let fix = "a worker offers an action only with its pack, its interpreter and its secrets: look for \
               `action not offered` in the workers' logs, which say what is missing; or start a worker \
               with the same packs";
    Finding { fix: fix.to_owned(), ..found }
}

fn troubled(TroubledWorker { id, name, trouble }: &TroubledWorker) -> Finding {
    let (rule, what, evidence) = match trouble {
        Trouble::Silent { last_heard, in_flight } => (
            Rule::WorkersLost,
            format!("worker {name} is silent"),
            format!(
                "last heard of {} ago; it holds {} when its lease ends",
                Lasting(*last_heard),
                counted(*in_flight, "job, which moves", "jobs, which move")
            ),
        ),
        Trouble::Late { last_heard, lease } => (
            Rule::WorkersLost,
            format!("worker {name} is late"),
            format!("last heard of {} ago; its lease is {}", Lasting(*last_heard), Lasting(*lease)),
        ),
        Trouble::Deaf(span) => (
            Rule::WorkerUnhealthy,
            format!("worker {name} sends heartbeats but takes no jobs"),
            format!("its engine has asked for none for {}", Lasting(*span)),
        ),
        Trouble::Unhealthy { reason, since } => (
            Rule::WorkerUnhealthy,
            format!("worker {name} is unhealthy and takes no jobs"),
            format!("{reason}, for {}", Lasting(*since)),
        ),
    };
    Finding { page: format!("workers/{id}"), ..Finding::of(rule, what, evidence) }
}

fn stuck_workflows(facts: &Facts) -> Option<Finding> {
    (facts.workflow_lag > WORKFLOW_LAG).then(|| {
        let lag = Lasting(facts.workflow_lag);
        let evidence = format!("the oldest end of a job has waited for {lag}");
        Finding::of(Rule::WorkflowsStuck, "workflows do not move on".to_owned(), evidence)
    })
}

fn old(queue: &WaitingQueue) -> Finding {
    let (name, path) = &queue.name;
    let waiting = counted(queue.available, "job waits", "jobs wait");
    let (rule, what) = if queue.paused {
        (Rule::QueuePaused, format!("queue {name} is paused, and {waiting} in it"))
    } else {
        (Rule::BacklogOld, format!("{waiting} in queue {name}"))
    };
    let evidence = format!("the oldest has waited for {}", Lasting(queue.oldest));
    let page = format!("queues/{path}");
    Finding { page, ..Finding::of(rule, what, evidence) }
}

fn failing(facts: &Facts) -> Option<Finding> {
    let failed = facts.failed.count;
    let ended = facts.completed.saturating_add(failed);
    let is_much = failed >= FAILED_MIN && failed.saturating_mul(FAILS_ONE_IN) > ended;
    is_much.then(|| {
        let what = facts.failed.words("attempt failed", "attempts failed");
        let evidence =
            format!("of {} that ended at this server", counted(ended, "attempt", "attempts"));
        Finding::of(Rule::JobsFail, what, evidence)
    })
}

#[cfg(test)]
mod tests;
