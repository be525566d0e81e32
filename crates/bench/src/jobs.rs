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

fn job(queue: &str, kind: &str) -> String {
    format!(r#"{{"type":"{kind}","args":[{{"n":1}}],"options":{{"queue":"{queue}"}}}}"#)
}

/// The request that enqueues one job.
pub(crate) fn request(address: &Address, queue: &str, kind: &str) -> Arc<[u8]> {
    address.post("/ojs/v1/jobs", &job(queue, kind))
}

/// The request that enqueues many.
pub(crate) fn bulk_request(address: &Address, queue: &str, kind: &str, jobs: usize) -> Arc<[u8]> {
    let job = job(queue, kind);
    let mut body = String::from("{\"jobs\":[");
    for number in 0..jobs {
        let comma = if number == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        write!(body, "{comma}{job}").unwrap_or_default();
    }
    body.push_str("]}");
    address.post("/ojs/v1/jobs/batch", &body)
}
