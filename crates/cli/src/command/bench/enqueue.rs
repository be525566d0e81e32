//! Enqueue over HTTP: one job a request, or many.

use std::fmt::Write as _;
use std::sync::Arc;

use super::connection::Address;
use super::figures::{Figure, Unit, rate};
use super::hands;
use super::place::Place;
use super::plan::Plan;
use super::produce::{Extent, Produced, Producers};
use crate::exit::Failure;
use crate::output::say;

/// Type of the jobs that do nothing.
pub(super) const NOOP: &str = "bench.noop";
/// Type of the jobs whose start is timed. Another, so that they never wait behind the others.
pub(super) const PROMPT: &str = "bench.prompt";
/// Type of the jobs that no worker takes.
pub(super) const UNSERVED: &str = "bench.unserved";
/// Producers of single enqueues.
pub(super) const PRODUCERS: usize = 16;
/// Jobs of one request when a store is filled without measuring.
const FILL_BATCH: usize = 1_000;
/// Connections that fill a store.
const FILLERS: usize = 4;

fn job(queue: &str, kind: &str) -> String {
    format!(r#"{{"type":"{kind}","args":[{{"n":1}}],"options":{{"queue":"{queue}"}}}}"#)
}

/// The request that enqueues one job.
pub(super) fn request(address: &Address, queue: &str, kind: &str) -> Arc<[u8]> {
    address.post("/ojs/v1/jobs", &job(queue, kind))
}

/// The request that enqueues many.
fn bulk_request(place: &Place, kind: &str, jobs: usize) -> Arc<[u8]> {
    let mut body = String::from("{\"jobs\":[");
    for number in 0..jobs {
        let comma = if number == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        write!(body, "{comma}{}", job(place.queue(), kind)).unwrap_or_default();
    }
    body.push_str("]}");
    place.address().post("/ojs/v1/jobs/batch", &body)
}

/// Enqueues exactly so many jobs as fast as it goes.
pub(super) async fn fill(place: &Place, kind: &str, jobs: usize) -> Result<(), Failure> {
    let (full, rest) = (jobs / FILL_BATCH, jobs % FILL_BATCH);
    let mut fillers = Producers::connect(place.address(), FILLERS).await?;
    if full > 0 {
        let request = bulk_request(place, kind, FILL_BATCH);
        fillers.send(&request, Extent::Requests(full)).await?;
    }
    if rest > 0 {
        let request = bulk_request(place, kind, rest);
        fillers.send(&request, Extent::Requests(1)).await?;
    }
    Ok(())
}

/// Rounds of single enqueues.
pub(super) async fn single(place: &Place, plan: &Plan) -> Result<Figure, Failure> {
    let request = request(place.address(), place.queue(), NOOP);
    let producers = plan.producers.unwrap_or(PRODUCERS);
    let sending = Sending { request, batch: 1, jobs: plan.jobs.unwrap_or(50_000) };
    sending.measure(place, plan, Figure::new("enqueue", Unit::PerSecond), producers).await
}

/// Rounds of bulk enqueues.
pub(super) async fn bulk(place: &Place, plan: &Plan) -> Result<Figure, Failure> {
    let jobs = plan.jobs.unwrap_or(100_000);
    let batch = plan.batch.min(jobs);
    let request = bulk_request(place, NOOP, batch);
    let producers = plan.producers.unwrap_or(4);
    let sending = Sending { request, batch, jobs };
    let mut figure = Figure::new("bulk", Unit::PerSecond);
    figure.note("batch", batch);
    sending.measure(place, plan, figure, producers).await
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
        place: &Place,
        plan: &Plan,
        mut figure: Figure,
        producers: usize,
    ) -> Result<Figure, Failure> {
        let mut connected = Producers::connect(place.address(), producers).await?;
        let requests = self.jobs.div_ceil(self.batch);
        let warm_up = Extent::Requests(requests.div_ceil(10));
        let warmed = connected.send(&self.request, warm_up).await?;
        self.clear(place, &warmed).await?;
        let extent = plan.time.map_or(Extent::Requests(requests), Extent::Time);
        let mut jobs = 0;
        for round in 1..=plan.rounds {
            let produced = connected.send(&self.request, extent).await?;
            let sent = produced.lengths.len() * self.batch;
            let rate = rate(sent, produced.took);
            say(&format!("{} {round}/{}: {rate:.0}/s\n", figure.name, plan.rounds));
            figure.rounds.push(rate);
            self.clear(place, &produced).await?;
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
    async fn clear(&self, place: &Place, produced: &Produced) -> Result<(), Failure> {
        hands::drain(place, &[NOOP], produced.lengths.len() * self.batch).await?;
        Ok(())
    }
}
