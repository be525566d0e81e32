//! Names on the wire: job types, queues, workers, ids.

use outlast_core::id::JobId;
use outlast_core::limits::{QUEUE_NAME_MAX, TYPE_NAME_MAX, WORKER_NAME_MAX};
use uuid::Uuid;

use crate::fault::Fault;

/// Checks a job's type: lower-case words joined by dots.
///
/// # Errors
/// Returns what is wrong with it.
pub fn job_type(name: &str) -> Result<(), Fault> {
    let fit = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'_' | b'-');
    let word = |word: &str| {
        word.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && word.bytes().all(fit)
    };
    let starts = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    if starts && name.len() <= TYPE_NAME_MAX && name.split('.').all(word) {
        return Ok(());
    }
    Err(Fault::field("type", "must be lower-case words joined by dots, such as `email.send`"))
}

/// What a queue's name must be.
pub(crate) const QUEUE: &str =
    "must be lower-case letters, digits, `-`, `_` and `.`, starting with a letter or digit";

/// Checks a queue's name.
///
/// # Errors
/// Returns what is wrong with it.
pub fn queue(name: &str) -> Result<(), Fault> {
    if is_queue(name) { Ok(()) } else { Err(Fault::field("queue", QUEUE)) }
}

pub(crate) fn is_queue(name: &str) -> bool {
    let fit =
        |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.' | b'_');
    let starts = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    starts && name.len() <= QUEUE_NAME_MAX && name.bytes().all(fit)
}

/// Checks the id that a plain worker gave itself.
///
/// # Errors
/// Returns what is wrong with it.
pub fn worker(id: &str) -> Result<(), Fault> {
    if id.is_empty() || id.len() > WORKER_NAME_MAX || id.chars().any(char::is_control) {
        let problem = format!("must be 1 to {WORKER_NAME_MAX} characters, none of them control");
        return Err(Fault::field("worker_id", problem));
    }
    Ok(())
}

/// Reads a job's id as a producer gives it: a UUIDv7 in lower case.
///
/// # Errors
/// Returns what is wrong with it.
pub fn new_id(text: &str) -> Result<JobId, Fault> {
    let lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    match Uuid::try_parse(text) {
        Ok(id) if lower && text.len() == 36 && id.get_version_num() == 7 => Ok(JobId(id)),
        Ok(_) | Err(_) => Err(Fault::field("id", "must be a UUIDv7 in lower case")),
    }
}
