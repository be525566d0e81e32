//! Drain: no-op jobs enqueued beforehand, run by one worker of the SDK with default settings.
//!
//! A server that is killed knows nothing afterwards of what waits, and one that did not take
//! the jobs in knows only what it is told: both are to drain as fast as the one that did.

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

/// Jobs of a round whose beginning is measured with it.
const LONG: usize = 200_000;

/// The server is killed and started again between the last enqueue and the first job.
pub(super) async fn restarted(place: &mut Place, plan: &Plan) -> Result<Figure, Failure> {
    let jobs = plan.jobs.unwrap_or(LONG);
    let at: &Place = place;
    warm_up(at, at, jobs).await?;
    let mut figure = Figure::new("drain.restarted", Unit::PerSecond);
    for round in 1..=plan.rounds {
        enqueue::fill(place, NOOP, jobs).await?;
        place.restart().await?;
        let rate = rate(jobs, hands::drain(place, &[NOOP], jobs).await?);
        say(&format!("drain.restarted {round}/{}: {rate:.0}/s\n", plan.rounds));
        figure.rounds.push(rate);
    }
    figure.note("jobs", jobs * plan.rounds);
    Ok(figure)
}

/// Jobs are enqueued at one server and run by a worker of another.
pub(super) async fn across(place: &Place, plan: &Plan) -> Result<Figure, Failure> {
    let jobs = plan.jobs.unwrap_or(LONG);
    let other = place.beside().await?;
    warm_up(place, &other, jobs).await?;
    let mut figure = Figure::new("drain.across", Unit::PerSecond);
    for round in 1..=plan.rounds {
        enqueue::fill(place, NOOP, jobs).await?;
        let rate = rate(jobs, hands::drain(&other, &[NOOP], jobs).await?);
        say(&format!("drain.across {round}/{}: {rate:.0}/s\n", plan.rounds));
        figure.rounds.push(rate);
    }
    figure.note("jobs", jobs * plan.rounds);
    other.leave().await?;
    Ok(figure)
}

async fn warm_up(from: &Place, to: &Place, jobs: usize) -> Result<(), Failure> {
    let some = jobs.div_ceil(10);
    enqueue::fill(from, NOOP, some).await?;
    hands::drain(to, &[NOOP], some).await?;
    Ok(())
}
