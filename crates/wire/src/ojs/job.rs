//! A job as the standard shows it.

use outlast_core::id::{Epoch, JobId};
use outlast_core::job::State;
use outlast_core::keys::Keys;
use outlast_core::selector::Placement;
use outlast_core::time::{Span, Timestamp};

use crate::json::{self, Object};

/// Options that a job shows at its root.
const PROMOTED: &[&str] =
    &["timeout_ms", "visibility_timeout_ms", "retry", "unique", "tags", "metadata"];
/// Root fields that are written from what is stored, never from what was sent.
const OWN: &[&str] = &[
    "options",
    "keys",
    "requires",
    "prefers",
    "queue",
    "priority",
    "scheduled_at",
    "delay_until",
    "expires_at",
];

/// What is shown of a job. Texts of JSON are passed on as they are.
#[derive(Clone, Debug)]
pub struct JobView<'a> {
    /// Id.
    pub id: JobId,
    /// Type.
    pub job_type: &'a str,
    /// Queue.
    pub queue: &'a str,
    /// State.
    pub state: State,
    /// JSON array.
    pub args: &'a str,
    /// JSON object; empty when there is none.
    pub meta: &'a str,
    /// JSON object of what else was sent; empty when there is none.
    pub extra: &'a str,
    /// Its keys, those of the action included.
    pub keys: &'a Keys,
    /// Which workers it wants, those of the action included.
    pub placement: &'a Placement,
    /// Priority.
    pub priority: i8,
    /// Attempt number on the wire.
    pub attempt: u32,
    /// Attempts in all.
    pub max_attempts: u32,
    /// When it was stored.
    pub created: Timestamp,
    /// When it is or was to run first.
    pub scheduled: Option<Timestamp>,
    /// From when on it must not be started.
    pub expires: Option<Timestamp>,
    /// What has come of it.
    pub course: Course<'a>,
}

/// What has come of a job so far.
#[derive(Clone, Debug, Default)]
pub struct Course<'a> {
    /// When the latest attempt started.
    pub started: Option<Timestamp>,
    /// When it completed, or was discarded by an attempt.
    pub completed: Option<Timestamp>,
    /// When it was cancelled.
    pub cancelled: Option<Timestamp>,
    /// When it was discarded.
    pub discarded: Option<Timestamp>,
    /// When it is tried again.
    pub next_attempt: Option<Timestamp>,
    /// How long the wait before the latest retry was or is.
    pub retry_delay: Option<Span>,
    /// JSON: its result.
    pub result: Option<&'a str>,
    /// JSON object: its latest error.
    pub error: Option<&'a str>,
    /// Errors of this life, oldest first.
    pub errors: Vec<ErrorView<'a>>,
    /// The claim that a report may name.
    pub lease: Option<Epoch>,
}

/// One attempt's error.
#[derive(Clone, Copy, Debug)]
pub struct ErrorView<'a> {
    /// JSON object.
    pub error: &'a str,
    /// Attempt number on the wire.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
}

impl JobView<'_> {
    /// Writes the job as an object.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        self.fields(&mut object);
        object.end();
    }

    /// Writes the job's fields into an object that is open.
    pub fn fields(&self, object: &mut Object<'_>) {
        object.raw("specversion", "\"1.0\"");
        object.plain("id", self.id);
        object.text("type", self.job_type);
        object.plain("state", self.state);
        object.text("queue", self.queue);
        object.raw("args", self.args);
        if !self.meta.is_empty() {
            object.raw("meta", self.meta);
        }
        object.number("priority", self.priority);
        object.number("attempt", self.attempt);
        object.number("max_attempts", self.max_attempts);
        object.time("created_at", self.created);
        object.time("enqueued_at", self.created);
        object.time_if("scheduled_at", self.scheduled);
        object.time_if("expires_at", self.expires);
        self.course.fields(object);
        if !self.keys.is_empty() || !self.placement.is_empty() {
            object.object("options", |options| self.write_options(options));
            self.write_options(object);
        }
        if !self.extra.is_empty() {
            self.extra_fields(object);
        }
    }

    /// These are where they were asked for, and at the root, as other options are.
    fn write_options(&self, object: &mut Object<'_>) {
        if !self.keys.is_empty() {
            object.object("keys", |keys| write_texts(keys, self.keys));
        }
        let Placement { requires, prefers } = self.placement;
        for (name, selector) in [("requires", requires), ("prefers", prefers)] {
            if !selector.is_empty() {
                object.text(name, &selector.to_string());
            }
        }
    }

    fn extra_fields(&self, object: &mut Object<'_>) {
        let sent = json::fields(self.extra);
        for (name, value) in &sent {
            if !OWN.contains(&name.as_str()) {
                object.raw(name, value.get());
            }
        }
        let options = sent.iter().find(|(name, _)| name == "options");
        let Some((_, options)) = options else { return };
        for (name, value) in json::fields(options.get()) {
            let at_root = sent.iter().any(|(known, _)| *known == name);
            if PROMOTED.contains(&name.as_str()) && !at_root {
                object.raw(&name, value.get());
            }
        }
    }
}

fn write_texts(object: &mut Object<'_>, texts: &Keys) {
    for (name, value) in texts {
        object.text(name, value);
    }
}

/// The field of a job's `extra` that says who enqueued it: the server's, not the producer's.
pub const ENQUEUED_BY: &str = "enqueued_by";

/// Returns `extra` with the name of who enqueued the job, and without any that the producer
/// gave itself.
#[must_use]
pub fn signed(extra: String, by: Option<&str>) -> String {
    if by.is_none() && json::field(&extra, ENQUEUED_BY).is_none() {
        return extra;
    }
    json::with(&extra, &[ENQUEUED_BY], |object| {
        if let Some(by) = by {
            object.text(ENQUEUED_BY, by);
        }
    })
}

/// Returns who enqueued a job, if that is known.
#[must_use]
pub fn enqueued_by(extra: &str) -> Option<String> {
    let raw = json::field(extra, ENQUEUED_BY)?;
    serde_json::from_str(raw.get()).ok()
}

impl Course<'_> {
    fn fields(&self, object: &mut Object<'_>) {
        object.time_if("started_at", self.started);
        object.time_if("completed_at", self.completed);
        object.time_if("cancelled_at", self.cancelled);
        object.time_if("discarded_at", self.discarded);
        object.time_if("next_attempt_at", self.next_attempt);
        if let Some(delay) = self.retry_delay {
            object.number("retry_delay_ms", delay.as_millis());
        }
        if let Some(result) = self.result {
            object.raw("result", result);
        }
        if let Some(error) = self.error {
            object.object("error", |object| error_fields(object, error));
        }
        if !self.errors.is_empty() {
            object.array("errors", &self.errors, |out, entry| {
                let mut object = Object::begin(out);
                error_fields(&mut object, entry.error);
                object.number("attempt", entry.attempt);
                object.time("occurred_at", entry.at);
                object.end();
            });
        }
        if let Some(epoch) = self.lease {
            object.number("epoch", epoch);
            object.plain("lease", epoch);
        }
    }
}

/// Writes an error's fields. Clients look for `type` or for `code`: both are there.
fn error_fields(object: &mut Object<'_>, error: &str) {
    let fields = json::fields(error);
    let find = |wanted: &str| fields.iter().find(|(name, _)| name == wanted);
    let (code, kind) = (find("code"), find("type"));
    for (name, value) in &fields {
        // These say which attempt; the history says so itself.
        if name != "attempt" && name != "occurred_at" {
            object.raw(name, value.get());
        }
    }
    match (code, kind) {
        (Some((_, code)), None) => object.raw("type", code.get()),
        (None, Some((_, kind))) => object.raw("code", kind.get()),
        (None, None) => {
            object.text("code", "error");
            object.text("type", "error");
        }
        (Some(_), Some(_)) => {}
    }
    if find("message").is_none() {
        match find("error") {
            Some((_, message)) => object.raw("message", message.get()),
            None => object.text("message", ""),
        }
    }
}
