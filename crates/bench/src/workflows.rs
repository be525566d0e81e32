//! What workflows cost: the same jobs by themselves, as steps of chains, and as items of a step.
//!
//! Each round measures every case, one after the other, so that what slows the machine down for a
//! while slows down all of them.

use std::sync::Arc;

use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::say;
use serde_json::{Map, Value, json};

use crate::enqueue::{self, PRODUCERS};
use crate::figures::{Figure, Unit, rate, rounded};
use crate::jobs::NOOP;
use crate::plan::Plan;
use crate::produce::{Extent, Producers};
use crate::target::Target;
use crate::workers;

/// Steps of a chain.
const CHAIN_STEPS: usize = 3;
/// Items of a group's step.
const GROUP_ITEMS: usize = 1_000;
/// Jobs of a round: chains and groups have as many together, or a few more.
const JOBS: usize = 20_000;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Jobs of no workflow: what the others are compared with.
    Plain,
    /// Workflows of three steps, each after the one before.
    Chain,
    /// Workflows of one step with 1,000 items.
    Group,
}

impl Case {
    const ALL: [Self; 3] = [Self::Plain, Self::Chain, Self::Group];

    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Chain => "chain",
            Self::Group => "group",
        }
    }

    /// Jobs of one workflow, when a round has so many.
    fn width(self, jobs: usize) -> usize {
        match self {
            Self::Plain => 1,
            Self::Chain => CHAIN_STEPS,
            Self::Group => GROUP_ITEMS.min(jobs),
        }
    }

    fn workflow(self, queue: &str, width: usize) -> Value {
        let mut steps = Map::new();
        if self == Self::Group {
            let items: Vec<usize> = (0..width).collect();
            let step =
                json!({"type": NOOP, "queue": queue, "for_each": items, "args": ["${{ item }}"]});
            steps.insert("all".to_owned(), step);
        } else {
            for nth in 0..width {
                let mut step = json!({"type": NOOP, "queue": queue, "args": [{"n": 1}]});
                if let Some(before) = nth.checked_sub(1) {
                    step["after"] = json!([format!("s{before}")]);
                }
                steps.insert(format!("s{nth}"), step);
            }
        }
        json!({"workflow": {"name": format!("bench-{}", self.name()), "steps": steps}})
    }
}

pub(crate) async fn measure(target: &Target, plan: &Plan) -> Result<Vec<Figure>, Failure> {
    let jobs = plan.jobs.unwrap_or(JOBS);
    let warm_up = jobs.div_ceil(10);
    for case in Case::ALL {
        one(target, case, warm_up).await?;
    }
    let mut all = Case::ALL
        .map(|case| (case, Figure::new(&format!("workflows.{}", case.name()), Unit::PerSecond)));
    for round in 1..=plan.rounds {
        for (case, figure) in &mut all {
            let (submitted, run) = one(target, *case, jobs).await?;
            say(&format!(
                "workflows.{} {round}/{}: {submitted:.0} jobs/s submitted, {run:.0}/s run\n",
                case.name(),
                plan.rounds
            ));
            figure.rounds.push(run);
        }
    }
    let [(_, plain), others @ ..] = &mut all;
    for (_, other) in others {
        if let Some(part) = other.part_of(plain) {
            other.note("of_plain", rounded(part));
        }
    }
    Ok(all.into_iter().map(|(_, figure)| figure).collect())
}

/// Returns how many jobs of a case a second are submitted, and are run by one worker.
async fn one(target: &Target, case: Case, jobs: usize) -> Result<(f64, f64), Failure> {
    let width = case.width(jobs);
    let workflows = jobs.div_ceil(width);
    let jobs = workflows * width;
    let submitted = if case == Case::Plain {
        let begun = outlast_cli_core::clock::moment();
        enqueue::fill(target, NOOP, jobs).await?;
        outlast_cli_core::clock::moment().since(begun)
    } else {
        let body = case.workflow(target.queue(), width).to_string();
        let request: Arc<[u8]> = target.address().post("/api/v1/workflows", &body);
        let mut producers = Producers::connect(target.address(), PRODUCERS).await?;
        producers.send(&request, Extent::Requests(workflows)).await?.took
    };
    let run = workers::drain(target, &[NOOP], jobs).await?;
    Ok((rate(jobs, submitted), rate(jobs, run)))
}
