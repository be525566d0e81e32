//! Enqueue over HTTP: one job a request, or many.

use std::sync::Arc;

use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::say;

use crate::figures::{Figure, Unit, rate};
use crate::jobs::{self, Keyed, NOOP};
use crate::plan::Plan;
use crate::produce::{Extent, Produced, Producers};
use crate::target::Target;
use crate::workers;

/// Producers of single enqueues.
pub(crate) const PRODUCERS: usize = 16;
/// Jobs of one request when a store is filled without measuring.
const FILL_BATCH: usize = 1_000;
/// Connections that fill a store.
const FILLERS: usize = 4;

/// Enqueues exactly `jobs` jobs, as fast as possible.
pub(crate) async fn fill(target: &Target, kind: &str, jobs: usize) -> Result<(), Failure> {
    fill_keyed(target, kind, None, jobs).await
}

/// As [`fill`]; the jobs may have a key.
pub(crate) async fn fill_keyed(
    target: &Target,
    kind: &str,
    keyed: Option<Keyed>,
    jobs: usize,
) -> Result<(), Failure> {
    let request = |count| jobs::bulk_request(target.address(), target.queue(), kind, keyed, count);
    let (full, rest) = (jobs / FILL_BATCH, jobs % FILL_BATCH);
    let mut fillers = Producers::connect(target.address(), FILLERS).await?;
    if full > 0 {
        fillers.send(&request(FILL_BATCH), Extent::Requests(full)).await?;
    }
    if rest > 0 {
        fillers.send(&request(rest), Extent::Requests(1)).await?;
    }
    Ok(())
}

/// Rounds of single enqueues.
pub(crate) async fn single(target: &Target, plan: &Plan) -> Result<Figure, Failure> {
    let request = jobs::request(target.address(), target.queue(), NOOP);
    let producers = plan.producers.unwrap_or(PRODUCERS);
    let sending = Sending { request, batch: 1, jobs: plan.jobs.unwrap_or(50_000) };
    sending.measure(target, plan, Figure::new("enqueue", Unit::PerSecond), producers).await
}

/// Rounds of bulk enqueues.
pub(crate) async fn bulk(target: &Target, plan: &Plan) -> Result<Figure, Failure> {
    let jobs = plan.jobs.unwrap_or(100_000);
    let batch = plan.batch.min(jobs);
    let request = jobs::bulk_request(target.address(), target.queue(), NOOP, None, batch);
    let producers = plan.producers.unwrap_or(4);
    let sending = Sending { request, batch, jobs };
    let mut figure = Figure::new("bulk", Unit::PerSecond);
    figure.note("batch", batch);
    sending.measure(target, plan, figure, producers).await
}

/// What is sent in every round.
struct Sending {
    request: Arc<[u8]>,
    /// Jobs of a request.
    batch: usize,
    /// Jobs of a round.
    jobs: usize,
}

impl Sending {
    async fn measure(
        &self,
        target: &Target,
        plan: &Plan,
        mut figure: Figure,
        producers: usize,
    ) -> Result<Figure, Failure> {
        let mut connected = Producers::connect(target.address(), producers).await?;
        let requests = self.jobs.div_ceil(self.batch);
        let warm_up = Extent::Requests(requests.div_ceil(10));
        let warmed = connected.send(&self.request, warm_up).await?;
        self.clear(target, &warmed).await?;
        let extent = plan.time.map_or(Extent::Requests(requests), Extent::Time);
        let mut jobs = 0;
        for round in 1..=plan.rounds {
            let produced = connected.send(&self.request, extent).await?;
            let sent = produced.lengths.len() * self.batch;
            let rate = rate(sent, produced.took);
            say(&format!("{} {round}/{}: {rate:.0}/s\n", figure.name, plan.rounds));
            figure.rounds.push(rate);
            self.clear(target, &produced).await?;
            figure.lengths.extend(produced.lengths);
            jobs += sent;
        }
        figure.note("jobs", jobs);
        figure.note("warm_up_jobs", warmed.lengths.len() * self.batch);
        figure.note("producers", producers);
        Ok(figure)
    }

    /// Runs what was enqueued, so that every round finds an empty queue and nothing is left in
    /// the end. It also shows that every accepted job was there.
    async fn clear(&self, target: &Target, produced: &Produced) -> Result<(), Failure> {
        workers::drain(target, &[NOOP], produced.lengths.len() * self.batch).await?;
        Ok(())
    }
}
