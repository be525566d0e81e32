//! Latency: an idle system, one job at a time, from before the request is sent to the
//! handler's start in this same process.

use std::time::Duration;

use outlast_cli_core::clock;
use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::say;

use crate::figures::{Figure, Unit, ms, percentile};
use crate::jobs;
use crate::plan::Plan;
use crate::target::Target;
use crate::workers::Watch;

/// Time between a job's start and the next request, so that the system is idle again.
const PAUSE: Duration = Duration::from_micros(300);
/// Jobs that warm connections and caches.
const WARM_UP: usize = 50;

pub(crate) async fn measure(target: &Target, plan: &Plan) -> Result<Figure, Failure> {
    let mut figure = Figure::new("latency", Unit::Milliseconds);
    let request = jobs::request(target.address(), target.queue(), jobs::PROMPT);
    let jobs = plan.jobs.unwrap_or(1_000);
    let mut watch = Watch::start(target)?;
    let mut connection = target.address().connect().await?;
    let mut lengths = Vec::with_capacity(jobs * plan.rounds);
    for _ in 0..WARM_UP + jobs * plan.rounds {
        let sent = clock::moment();
        connection.create(&request).await?;
        let Some(started) = watch.next().await else { return Err(watch.stuck().await) };
        lengths.push(started.since(sent));
        tokio::time::sleep(PAUSE).await;
    }
    watch.stop().await?;
    lengths.drain(..WARM_UP);
    for (number, round) in lengths.chunks(jobs.max(1)).enumerate() {
        let mut sorted = round.to_vec();
        sorted.sort_unstable();
        let median = percentile(&sorted, 50).map_or(0.0, ms);
        say(&format!("latency {}/{}: p50 {median:.3} ms\n", number + 1, plan.rounds));
        figure.rounds.push(median);
    }
    figure.note("jobs", lengths.len());
    figure.note("warm_up_jobs", WARM_UP);
    figure.lengths = lengths;
    Ok(figure)
}
