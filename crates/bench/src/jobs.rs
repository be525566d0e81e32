//! The jobs that are enqueued, and the requests that enqueue them.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::connection::Address;

/// Type of the jobs that do nothing.
pub(crate) const NOOP: &str = "bench.noop";
/// Type of the jobs whose start is timed. Another, so that they never wait behind the others.
pub(crate) const PROMPT: &str = "bench.prompt";
/// Type of the jobs that no worker takes.
pub(crate) const UNSERVED: &str = "bench.unserved";

/// Jobs have this key: its first values in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed {
    pub(crate) name: &'static str,
    /// How many values there are.
    pub(crate) values: usize,
}

/// Different jobs, to be enqueued in turn: one, or one for each value of the key.
fn jobs(queue: &str, kind: &str, keyed: Option<Keyed>) -> Vec<String> {
    let job = |keys: &str| {
        format!(r#"{{"type":"{kind}","args":[{{"n":1}}],"options":{{"queue":"{queue}"{keys}}}}}"#)
    };
    let Some(Keyed { name, values }) = keyed else { return vec![job("")] };
    (0..values).map(|value| job(&format!(r#","keys":{{"{name}":"{value}"}}"#))).collect()
}

/// The requests that enqueue one job each.
pub(crate) fn requests(
    address: &Address,
    queue: &str,
    kind: &str,
    keyed: Option<Keyed>,
) -> Vec<Arc<[u8]>> {
    jobs(queue, kind, keyed).iter().map(|job| address.post("/ojs/v1/jobs", job)).collect()
}

/// Requests that enqueue one unique job each, all of them different: `round` tells those of one
/// round from others.
pub(crate) fn unique_requests(
    address: &Address,
    queue: &str,
    round: usize,
    count: usize,
) -> Vec<Arc<[u8]>> {
    let request = |n: usize| {
        let job = format!(
            r#"{{"type":"{NOOP}","args":[{round},{n}],"options":{{"queue":"{queue}","unique":{{"keys":["args"],"on_conflict":"ignore"}}}}}}"#
        );
        address.post("/ojs/v1/jobs", &job)
    };
    (0..count).map(request).collect()
}

/// The request that enqueues one job.
pub(crate) fn request(address: &Address, queue: &str, kind: &str) -> Arc<[u8]> {
    requests(address, queue, kind, None).swap_remove(0)
}

/// The request that enqueues many.
pub(crate) fn bulk_request(
    address: &Address,
    queue: &str,
    kind: &str,
    keyed: Option<Keyed>,
    count: usize,
) -> Arc<[u8]> {
    let jobs = jobs(queue, kind, keyed);
    let mut body = String::from("{\"jobs\":[");
    for (number, job) in jobs.iter().cycle().take(count).enumerate() {
        let comma = if number == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        write!(body, "{comma}{job}").unwrap_or_default();
    }
    body.push_str("]}");
    address.post("/ojs/v1/jobs/batch", &body)
}
