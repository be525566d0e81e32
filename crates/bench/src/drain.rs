//! Drain: no-op jobs enqueued beforehand, run by one worker of the SDK with default settings.
//!
//! A restarted server has to read the backlog from the store, and a second server learns of it
//! through notifications: both should drain as fast as the server that accepted the jobs.

use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::say;

use crate::figures::{Figure, Unit, rate};
use crate::jobs::NOOP;
use crate::plan::Plan;
use crate::target::Target;
use crate::{enqueue, workers};

pub(crate) async fn measure(target: &Target, plan: &Plan) -> Result<Figure, Failure> {
    let mut figure = Figure::new("drain", Unit::PerSecond);
    let jobs = plan.jobs.unwrap_or(100_000);
    let warm_up = jobs.div_ceil(10);
    enqueue::fill(target, NOOP, warm_up).await?;
    workers::drain(target, &[NOOP], warm_up).await?;
    for round in 1..=plan.rounds {
        enqueue::fill(target, NOOP, jobs).await?;
        let rate = rate(jobs, workers::drain(target, &[NOOP], jobs).await?);
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
pub(crate) async fn restarted(target: &mut Target, plan: &Plan) -> Result<Figure, Failure> {
    let jobs = plan.jobs.unwrap_or(LONG);
    let at: &Target = target;
    warm_up(at, at, jobs).await?;
    let mut figure = Figure::new("drain.restarted", Unit::PerSecond);
    for round in 1..=plan.rounds {
        enqueue::fill(target, NOOP, jobs).await?;
        target.restart().await?;
        let rate = rate(jobs, workers::drain(target, &[NOOP], jobs).await?);
        say(&format!("drain.restarted {round}/{}: {rate:.0}/s\n", plan.rounds));
        figure.rounds.push(rate);
    }
    figure.note("jobs", jobs * plan.rounds);
    Ok(figure)
}

/// Jobs are enqueued at one server and run by a worker of another.
pub(crate) async fn across(target: &Target, plan: &Plan) -> Result<Figure, Failure> {
    let jobs = plan.jobs.unwrap_or(LONG);
    let other = target.second_server().await?;
    warm_up(target, &other, jobs).await?;
    let mut figure = Figure::new("drain.across", Unit::PerSecond);
    for round in 1..=plan.rounds {
        enqueue::fill(target, NOOP, jobs).await?;
        let rate = rate(jobs, workers::drain(&other, &[NOOP], jobs).await?);
        say(&format!("drain.across {round}/{}: {rate:.0}/s\n", plan.rounds));
        figure.rounds.push(rate);
    }
    figure.note("jobs", jobs * plan.rounds);
    other.close().await?;
    Ok(figure)
}

async fn warm_up(from: &Target, to: &Target, jobs: usize) -> Result<(), Failure> {
    let some = jobs.div_ceil(10);
    enqueue::fill(from, NOOP, some).await?;
    workers::drain(to, &[NOOP], some).await?;
    Ok(())
}
