//! Drain: no-op jobs enqueued beforehand, run by one worker of the SDK with default settings.

use super::enqueue::NOOP;
use super::figures::{Figure, Unit, rate};
use super::place::Place;
use super::plan::Plan;
use super::{enqueue, hands};
use crate::exit::Failure;
use crate::output::say;

pub(super) async fn measure(place: &Place, plan: &Plan) -> Result<Figure, Failure> {
    let mut figure = Figure::new("drain", Unit::PerSecond);
    let jobs = plan.jobs.unwrap_or(100_000);
    let warm_up = jobs.div_ceil(10);
    enqueue::fill(place, NOOP, warm_up).await?;
    hands::drain(place, &[NOOP], warm_up).await?;
    for round in 1..=plan.rounds {
        enqueue::fill(place, NOOP, jobs).await?;
        let rate = rate(jobs, hands::drain(place, &[NOOP], jobs).await?);
        say(&format!("drain {round}/{}: {rate:.0}/s\n", plan.rounds));
        figure.rounds.push(rate);
    }
    figure.note("jobs", jobs * plan.rounds);
    figure.note("warm_up_jobs", warm_up);
    figure.note("concurrency", 10);
    Ok(figure)
}
