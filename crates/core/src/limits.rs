//! Every bound of the product with its reason. What is not bounded here is a bug.

use crate::bucket::Rate;
use crate::time::Span;

/// Largest request body, unless configured: a job is a message, not a file.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Longest `Idempotency-Key`.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// How long one is kept; clients do not repeat a request later than that.
pub const IDEMPOTENCY_KEY_KEPT: Span = Span::from_secs(24 * 3600);
/// Most bytes of request bodies in memory at once: of long ones, of short ones, and of workers'.
/// Each costs about three times its length until it is stored and answered.
pub const BODIES_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Longest body, and longest job, that counts as short: those have room of their own, also in
/// batches.
pub const SHORT_BODY_BYTES_MAX: usize = 64 * 1024;
/// Deepest JSON accepted: keeps recursive readers away from the end of their stack.
pub const JSON_DEPTH_MAX: usize = 64;
/// Largest result of a job.
pub const RESULT_BYTES_MAX: usize = 1024 * 1024;
/// Longest type of an error: a word.
pub const ERROR_TYPE_BYTES_MAX: usize = 255;
/// Longest message of an error: lists show it, every retry keeps one, and the whole text of a
/// failure is the log's to keep.
pub const ERROR_MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// Most details of an error.
pub const ERROR_DETAILS_BYTES_MAX: usize = 64 * 1024;
/// Longest evidence: a sentence, kept with each attempt and each event.
pub const EVIDENCE_BYTES_MAX: usize = 4 * 1024;
/// Largest piece of output in one chunk; a larger one is cut into several.
pub const LOG_CHUNK_BYTES_MAX: usize = 64 * 1024;
/// Largest message of a worker's session that either side reads.
pub const SESSION_MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A message of a session takes nothing more in beyond this, so that none comes near the
/// limit above: the largest delivery or report is a few bodies.
pub const SESSION_MESSAGE_BYTES_AIM: usize = 4 * 1024 * 1024;
/// Largest checkpoint of a job.
pub const CHECKPOINT_BYTES_MAX: usize = 1024 * 1024;
/// Most output kept for an attempt, standard output and error together.
pub const LOG_BYTES_MAX: usize = 10 * 1024 * 1024;
/// Room beyond that for what its worker remarks: that output was cut, and why.
pub const LOG_REMARKS_BYTES_MAX: usize = 64 * 1024;
/// Most jobs in one bulk enqueue: one request stays one bounded transaction.
pub const BULK_JOBS_MAX: usize = 10_000;
/// Most unique jobs of one request: each that replaces another is a round trip to the store.
pub const BULK_UNIQUE_JOBS_MAX: usize = 1_000;
/// Most jobs one fetch may take.
pub const FETCH_JOBS_MAX: u32 = 1_000;
/// Most queues one fetch may name: each is looked at while it waits.
pub const FETCH_QUEUES_MAX: usize = 1_000;
/// Longest list page.
pub const PAGE_MAX: u32 = 1_000;
/// Most bytes of jobs on one page of a list, but for its first job; a page that ends there is
/// short. Many readers at once must not fill the memory.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Longest arguments and longest result that a list shows; the job by itself shows all.
pub const LISTED_BYTES_MAX: usize = 16 * 1024;
/// Most bytes of the event log that one read holds, but for the first batch: a reader that begins
/// with the oldest events must not fill the memory.
pub const EVENTS_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How many bytes of jobs a claim takes: none after these, whatever it asks for. The rest is
/// claimed at once after that.
pub const CLAIM_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How many bytes of jobs that programs stored by SQL a server takes in at once: none after these.
pub const ARRIVALS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes that one prune frees in a store with one writer, which all other batches wait for; of
/// a job with more output, some goes.
pub const PRUNE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes that one prune frees where it holds up nothing, beside the first job's: a slow disk gives
/// them within the limit of a statement.
pub const PRUNE_BESIDE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most operations that run at a time: they share one pace, so more of them are each slower.
pub const OPERATIONS_RUNNING_MAX: usize = 20;
/// Longest filter of an operation, as JSON: it is read with each step, and shown in lists.
pub const OPERATION_FILTER_BYTES_MAX: usize = 8 * 1024;
/// Longest reason that someone gives for an operation.
pub const OPERATION_REASON_BYTES_MAX: usize = 1024;
/// How far matching jobs are counted one by one before an operation begins: more are "at least" so many.
pub const OPERATION_COUNTED_MAX: u64 = 10_000;
/// Above how many jobs a person types the number before an operation begins.
pub const OPERATION_TYPED_ABOVE: u64 = 100;
/// Most jobs of one step of an operation: it is one command, and delays others by its length.
pub const OPERATION_STEP_MAX: usize = 200;
/// Longest `meta` of a job (OJS payload limits): it is shown and logged.
pub const META_BYTES_MAX: usize = 64 * 1024;
/// Longest queue name (OJS core, queue naming).
pub const QUEUE_NAME_MAX: usize = 255;
/// Longest job type.
pub const TYPE_NAME_MAX: usize = 255;
/// Longest tenant name.
pub const TENANT_NAME_MAX: usize = 255;
/// Most labels that a job asks for, those of its action included.
pub const LABELS_MAX: usize = 32;
/// Longest JSON text of them: they are part of the key that jobs are claimed by, and
/// PostgreSQL keeps no key above 2,700 bytes.
pub const LABELS_BYTES_MAX: usize = 1024;
/// Longest text of a job's labels and selectors together, for the same reason.
pub const ROUTE_BYTES_MAX: usize = 1536;
/// Longest digest of a pack: a SHA-256 in hexadecimal.
pub const PACK_DIGEST_BYTES_MAX: usize = 64;
/// Longest worker name.
pub const WORKER_NAME_MAX: usize = 255;
/// Most slots a worker may offer.
pub const CONCURRENCY_MAX: u32 = 10_000;
/// Longest long poll of an OJS fetch; clients time out at 30 s.
pub const LONG_POLL_MAX: Span = Span::from_secs(20);
/// Longest a request waits for the end of an execution; proxies often give up after a minute.
pub const EXECUTION_WAIT_MAX: Span = Span::from_secs(60);
/// Shortest heartbeat interval a server grants: a beat is a store write.
pub const HEARTBEAT_MIN: Span = Span::from_millis(100);
/// Longest heartbeat interval a server grants: it bounds every detection.
pub const HEARTBEAT_MAX: Span = Span::from_secs(300);
/// How long an attempt must run before its start is stored; shorter ones only report their end.
pub const START_PERSIST_AFTER: Span = Span::from_millis(50);
/// Most observed work handed to a worker beyond its free slots.
pub const PREFETCH_WORK_MAX: Span = Span::from_millis(20);
/// How fast one server hands out what a mass loss gave back: a fleet that came back, or what is
/// left of it, and the store are not run down by everything at once.
pub const REDISPATCH: Rate = Rate { per_second: 2_000, burst: 500 };
/// How long a process tree is given to end after SIGKILL before its end is in doubt.
pub const KILL_CONFIRM_MAX: Span = Span::from_secs(5);

/// How long a browser stays signed in without a request.
pub const SESSION_IDLE_MAX: Span = Span::from_secs(12 * 3600);
/// How long a browser stays signed in at most.
pub const SESSION_LIFE_MAX: Span = Span::from_secs(7 * 24 * 3600);
/// Sessions that one token may have: another one ends the one that was unused for longest.
pub const SESSIONS_OF_TOKEN_MAX: usize = 100;

/// Cuts a text to `max` bytes, and says at its end that it was cut and how long it was.
#[must_use]
pub fn cut(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let mark = format!("… [cut, {} bytes in all]", text.len());
    let mut end = max.saturating_sub(mark.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let mut kept = text;
    kept.truncate(end);
    kept + &mark
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_text_is_cut_between_characters_and_says_so() {
        assert_eq!(cut("short".into(), 5), "short");
        let long = "ä".repeat(1000);
        for max in 40..60 {
            let kept = cut(long.clone(), max);
            assert!(kept.len() <= max && kept.starts_with('ä'), "{kept}");
            assert!(kept.ends_with("[cut, 2000 bytes in all]"), "{kept}");
        }
    }
}
