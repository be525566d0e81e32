//! What keys, limits, shares and unique keys cost: the same jobs without and with them.
//!
//! Each round measures every case, one after the other, so that what slows the machine down for a
//! while slows down all of them.

use outlast_cli_core::client::Client;
use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::say;
use serde_json::json;

use crate::enqueue::{self, PRODUCERS};
use crate::figures::{Figure, Unit, rate, rounded};
use crate::jobs::{self, Keyed, NOOP};
use crate::plan::Plan;
use crate::produce::{Extent, Producers};
use crate::target::Target;
use crate::workers;

/// Values of the key.
const VALUES: usize = 50;
/// The key that the limits of all cases but one are on.
const TENANT: &str = "bench-tenant";
/// The key of jobs that are not let start.
const FULL: &str = "bench-full";
/// Jobs that wait for each value of that key.
const FULL_JOBS: usize = 100;
/// Jobs of a round, of which the first few are enqueued one by one.
const JOBS: usize = 20_000;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Jobs without keys: what the others are compared with.
    Plain,
    /// Jobs of 50 values of a key, without a limit.
    Keyed,
    /// The same with a limit that is never reached.
    Open,
    /// The same with a limit of one at a time for each value.
    Tight,
    /// As [`Case::Open`], while 50 values of another key have jobs that are not let start.
    Full,
    /// As [`Case::Keyed`], in a queue that is shared by that key.
    Fair,
    /// Unique jobs, none of which is stored yet. Only those that are enqueued one by one are unique.
    Unique,
}

impl Case {
    const ALL: [Self; 7] =
        [Self::Plain, Self::Keyed, Self::Open, Self::Tight, Self::Full, Self::Fair, Self::Unique];

    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Keyed => "keyed",
            Self::Open => "open",
            Self::Tight => "tight",
            Self::Full => "full",
            Self::Fair => "fair",
            Self::Unique => "unique",
        }
    }

    /// Most jobs of each value at a time.
    const fn concurrency(self) -> Option<u32> {
        match self {
            Self::Plain | Self::Keyed | Self::Fair | Self::Unique => None,
            Self::Open | Self::Full => Some(1_000_000),
            Self::Tight => Some(1),
        }
    }

    const fn keyed(self) -> Option<Keyed> {
        match self {
            Self::Plain | Self::Unique => None,
            Self::Keyed | Self::Open | Self::Tight | Self::Full | Self::Fair => {
                Some(Keyed { name: TENANT, values: VALUES })
            }
        }
    }
}

/// The two figures of a case.
struct Figures {
    case: Case,
    enqueue: Figure,
    drain: Figure,
}

impl Figures {
    fn of(case: Case) -> Self {
        let figure = |what| Figure::new(&format!("limits.{what}.{}", case.name()), Unit::PerSecond);
        Self { case, enqueue: figure("enqueue"), drain: figure("drain") }
    }
}

pub(crate) async fn measure(target: &Target, plan: &Plan) -> Result<Vec<Figure>, Failure> {
    let jobs = plan.jobs.unwrap_or(JOBS);
    let bench = Bench { target, client: Client::new(target.config().clone())?, jobs };
    let warm_up = jobs.div_ceil(10);
    enqueue::fill(target, NOOP, warm_up).await?;
    workers::drain(target, &[NOOP], warm_up).await?;
    let mut all = Case::ALL.map(Figures::of);
    for round in 1..=plan.rounds {
        for figures in &mut all {
            let (enqueued, drained) = bench.one(figures.case, round).await?;
            say(&format!(
                "limits.{} {round}/{}: {enqueued:.0}/s enqueued, {drained:.0}/s drained\n",
                figures.case.name(),
                plan.rounds
            ));
            figures.enqueue.rounds.push(enqueued);
            figures.drain.rounds.push(drained);
        }
    }
    let [plain, others @ ..] = &mut all;
    for other in others {
        for (one, with) in [(&mut other.enqueue, &plain.enqueue), (&mut other.drain, &plain.drain)]
        {
            if let Some(part) = one.part_of(with) {
                one.note("of_plain", rounded(part));
            }
        }
    }
    Ok(all.into_iter().flat_map(|figures| [figures.enqueue, figures.drain]).collect())
}

struct Bench<'a> {
    target: &'a Target,
    client: Client,
    /// Jobs of a round.
    jobs: usize,
}

impl Bench<'_> {
    /// Returns how many jobs of a case a second are enqueued, one in a request, and are run.
    async fn one(&self, case: Case, round: usize) -> Result<(f64, f64), Failure> {
        if let Some(concurrency) = case.concurrency() {
            self.limit(TENANT, concurrency).await?;
        }
        if case == Case::Full {
            self.limit(FULL, 0).await?;
            let full = Keyed { name: FULL, values: VALUES };
            enqueue::fill_keyed(self.target, NOOP, Some(full), VALUES * FULL_JOBS).await?;
        }
        if case == Case::Fair {
            self.share_by(Some(TENANT)).await?;
        }
        let (address, queue) = (self.target.address(), self.target.queue());
        let single = self.jobs.div_ceil(4);
        let requests = match case {
            // Twice as many as are sent, so that each producer has enough of its own.
            Case::Unique => jobs::unique_requests(address, queue, round, 2 * single),
            _ => jobs::requests(address, queue, NOOP, case.keyed()),
        };
        let mut producers = Producers::connect(address, PRODUCERS).await?;
        let produced = producers.send_each(&requests, Extent::Requests(single)).await?;
        let rest = self.jobs - single;
        enqueue::fill_keyed(self.target, NOOP, case.keyed(), rest).await?;
        let drained = workers::drain(self.target, &[NOOP], self.jobs).await?;
        if case == Case::Full {
            self.unlimit(FULL).await?;
            workers::drain(self.target, &[NOOP], VALUES * FULL_JOBS).await?;
        }
        if case == Case::Fair {
            self.share_by(None).await?;
        }
        if case.concurrency().is_some() {
            self.unlimit(TENANT).await?;
        }
        Ok((rate(single, produced.took), rate(self.jobs, drained)))
    }

    /// Lets so many jobs of each value of a key run at a time.
    async fn limit(&self, key: &str, concurrency: u32) -> Result<(), Failure> {
        let body = json!({"scope": "key", "of": key, "concurrency": concurrency});
        self.client.put(&["api", "v1", "limits", key], &body).await.map(drop)
    }

    async fn share_by(&self, key: Option<&str>) -> Result<(), Failure> {
        let path = ["api", "v1", "queues", self.target.queue()];
        self.client.put(&path, &json!({"fair_by": key})).await.map(drop)
    }

    async fn unlimit(&self, key: &str) -> Result<(), Failure> {
        self.client.delete(&["api", "v1", "limits", key]).await.map(drop)
    }
}
