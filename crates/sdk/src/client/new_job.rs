//! A job to be enqueued.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{ClientError, Unique, instant};

/// A job to be enqueued. Options that are not set are the server's defaults.
///
/// ```
/// # use std::time::Duration;
/// # use outlast_sdk::{NewJob, Retry};
/// #[derive(serde::Serialize)]
/// struct Email { to: String, subject: String }
///
/// let job = NewJob::new("email.send", Email { to: "a@b.example".into(), subject: "Hi".into() })
///     .queue("mail")
///     .delay(Duration::from_secs(60))
///     .timeout(Duration::from_secs(30))
///     .retry(Retry::attempts(5).never_for(["unknown_address"]))
///     .meta("tenant", 7);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct NewJob {
    job_type: String,
    /// Kept until it is sent: only then can an error be returned.
    args: Result<Value, Arc<serde_json::Error>>,
    meta: Map<String, Value>,
    meta_error: Option<Arc<serde_json::Error>>,
    options: Map<String, Value>,
    idempotency_key: Option<String>,
}

/// A retry policy. Options that are not set are the server's defaults.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Retry(Map<String, Value>);

impl NewJob {
    /// A job of this type with one argument, which is what a handler of the SDK takes.
    pub fn new(job_type: impl Into<String>, args: impl Serialize) -> Self {
        Self::with(job_type, serde_json::to_value(args).map(|one| Value::Array(vec![one])))
    }

    /// A job with several arguments in order, or none: `args` is a tuple or a list.
    pub fn positional(job_type: impl Into<String>, args: impl Serialize) -> Self {
        Self::with(job_type, serde_json::to_value(args))
    }

    fn with(job_type: impl Into<String>, args: Result<Value, serde_json::Error>) -> Self {
        Self {
            job_type: job_type.into(),
            args: args.map_err(Arc::new),
            meta: Map::new(),
            meta_error: None,
            options: Map::new(),
            idempotency_key: None,
        }
    }

    /// Queue. Default: `default`.
    pub fn queue(self, name: impl Into<String>) -> Self {
        self.option("queue", json!(name.into()))
    }

    /// From -100 to 100; higher goes first within a queue. Default: 0.
    pub fn priority(self, priority: i8) -> Self {
        self.option("priority", json!(priority))
    }

    /// Delay before it may run first. Default: none. In milliseconds.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.options.remove("scheduled_at");
        if delay.is_zero() {
            self.options.remove("delay_ms");
            return self;
        }
        self.option("delay_ms", millis(delay))
    }

    /// When it may run first. Default: at once.
    pub fn at(mut self, at: SystemTime) -> Self {
        self.options.remove("delay_ms");
        self.option("scheduled_at", json!(instant::text(at)))
    }

    /// Its retry policy. Default: three attempts, 1 s before the second, then doubling.
    pub fn retry(self, retry: Retry) -> Self {
        self.option("retry", retry.into_value())
    }

    /// Longest an attempt may run. Default: no limit. In milliseconds.
    pub fn timeout(self, longest: Duration) -> Self {
        self.option("timeout_ms", millis(longest))
    }

    /// Two of its attempts must never run at the same time, not even while the network is
    /// cut: a worker that cannot renew its lease ends the attempt, if need be with its process,
    /// before another may have the job. Default: they may, until the one that is cut off
    /// notices.
    pub fn overlap_forbidden(self) -> Self {
        self.option("overlap", json!("forbidden"))
    }

    /// What its worker must match: a selector of labels such as `gpu=true, zone in (a, b), !spot`.
    /// Enqueuing fails if it is none. Default: any worker with a handler will do.
    pub fn requires(self, selector: impl Into<String>) -> Self {
        self.option("requires", json!(selector.into()))
    }

    /// What its worker should match: of the workers with a free slot, those that match most of it
    /// come first. It never waits for one. Default: nothing.
    pub fn prefers(self, selector: impl Into<String>) -> Self {
        self.option("prefers", json!(selector.into()))
    }

    /// Most memory that an attempt may use, in bytes: it is ended beyond that, with an error of type
    /// `oom_killed`. For jobs of actions only. Default: what the action says, else no limit.
    pub fn memory(self, bytes: u64) -> Self {
        self.resource("memory", json!(bytes))
    }

    /// How much of a processor an attempt may use; 2.0 are two processors. For jobs of actions
    /// only. Default: what the action says, else no limit.
    pub fn cpu(self, processors: f64) -> Self {
        self.resource("cpu", json!(processors))
    }

    /// How many processes and threads an attempt may have at a time. For jobs of actions only.
    /// Default: what the action says, else no limit.
    pub fn processes(self, most: u32) -> Self {
        self.resource("processes", json!(most))
    }

    fn resource(mut self, name: &str, most: Value) -> Self {
        self.options.entry("resources").or_insert_with(|| json!({}))[name] = most;
        self
    }

    /// Adds a key, which says what the job belongs to: `("tenant", "42")`. At most 4; a name has 1
    /// to 64 characters out of a-z, 0-9, `_`, `.` and `-`, a value at most 256 bytes. It replaces
    /// the key of this name that the job's action has. Default: the action's.
    pub fn key(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        let keys = self.options.entry("keys").or_insert_with(|| json!({}));
        keys[name.into()] = json!(value.to_string());
        self
    }

    /// When it expires: it is not started from then on. Default: never.
    pub fn expires(self, at: SystemTime) -> Self {
        self.option("expires_at", json!(instant::text(at)))
    }

    /// How long after being stored it expires. Default: never.
    pub fn expires_after(self, period: Duration) -> Self {
        let span = crate::clock::span(period);
        self.option("expires_at", json!(format!("+{}", outlast_wire::duration::to_iso(span))))
    }

    /// Makes it the only one of its sort. Default: there may be any number of the same job.
    pub fn unique(self, policy: Unique) -> Self {
        self.option("unique", policy.into_value())
    }

    /// Adds metadata, which handlers and lists show. Default: none.
    pub fn meta(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        match serde_json::to_value(value) {
            Ok(value) => {
                self.meta.insert(name.into(), value);
            }
            Err(error) => self.meta_error = Some(Arc::new(error)),
        }
        self
    }

    /// Makes it safe to enqueue the same job again: within 24 hours the same key gives the
    /// job that was stored first, and another job under it is refused. 1 to 255 printable
    /// ASCII characters. Default: one that the client makes for this call, so that it may
    /// repeat the request.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// An option by its name in the protocol, for those without a method here.
    pub fn option(mut self, name: impl Into<String>, value: Value) -> Self {
        self.options.insert(name.into(), value);
        self
    }

    /// Returns what is sent, and the key.
    pub(crate) fn into_parts(self) -> Result<(Value, Option<String>), ClientError> {
        let args = self.args.map_err(|source| ClientError::encode("args", source))?;
        if let Some(source) = self.meta_error {
            return Err(ClientError::encode("meta", source));
        }
        if !args.is_array() {
            let problem = format!("args of a {:?} are no list", self.job_type);
            return Err(ClientError::usage(problem, "give a tuple, or use `NewJob::new`"));
        }
        let mut envelope = Map::new();
        envelope.insert("type".to_owned(), Value::String(self.job_type));
        envelope.insert("args".to_owned(), args);
        if !self.meta.is_empty() {
            envelope.insert("meta".to_owned(), Value::Object(self.meta));
        }
        if !self.options.is_empty() {
            envelope.insert("options".to_owned(), Value::Object(self.options));
        }
        Ok((Value::Object(envelope), self.idempotency_key))
    }
}

impl Retry {
    /// Most attempts in all, the first included. Default: 3.
    pub fn attempts(max: u32) -> Self {
        Self(Map::new()).with("max_attempts", json!(max))
    }

    /// One attempt: once started, the job never runs again by itself.
    pub fn never() -> Self {
        Self::attempts(1)
    }

    /// Pause before the second attempt. Default: 1 s.
    pub fn initial_interval(self, pause: Duration) -> Self {
        self.with("initial_interval_ms", millis(pause))
    }

    /// Longest pause. Default: 5 min.
    pub fn max_interval(self, pause: Duration) -> Self {
        self.with("max_interval_ms", millis(pause))
    }

    /// The factor from each pause to the next, from 1 to 1000. Default: 2.
    pub fn coefficient(self, factor: f64) -> Self {
        self.with("backoff_coefficient", json!(factor))
    }

    /// All pauses are as long as the first.
    pub fn constant(self) -> Self {
        self.with("backoff_strategy", json!("constant"))
    }

    /// Pauses grow by the first one each time.
    pub fn linear(self) -> Self {
        self.with("backoff_strategy", json!("linear"))
    }

    /// Whether pauses have random jitter, so that jobs that failed together are not retried
    /// together. Default: yes.
    pub fn jitter(self, varied: bool) -> Self {
        self.with("jitter", json!(varied))
    }

    /// Types of errors after which there is no further attempt. Default: none.
    pub fn never_for<T: Into<String>>(self, types: impl IntoIterator<Item = T>) -> Self {
        let types: Vec<String> = types.into_iter().map(Into::into).collect();
        self.with("non_retryable_errors", json!(types))
    }

    /// A job that has used up its attempts is dead-lettered for an operator. Default: it is
    /// discarded.
    pub fn dead_letter(self) -> Self {
        self.with("on_exhaustion", json!("dead_letter"))
    }

    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    fn with(mut self, name: &str, value: Value) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }
}

fn millis(length: Duration) -> Value {
    json!(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::{NewJob, Retry};
    use crate::client::ClientError;

    #[test]
    fn only_what_was_said_is_sent() {
        let (bare, key) = NewJob::new("t", 1).into_parts().unwrap();
        assert_eq!((bare, key), (json!({"type": "t", "args": [1]}), None));
    }

    #[test]
    fn every_option_has_its_name_on_the_wire() {
        let job = NewJob::positional("t", (1, "two"))
            .queue("q")
            .priority(-5)
            .delay(Duration::from_millis(1500))
            .timeout(Duration::from_secs(2))
            .expires_after(Duration::from_secs(90))
            .meta("trace", "abc")
            .key("tenant", 42)
            .key("account", "acme")
            .memory(64 << 20)
            .cpu(0.5)
            .processes(8)
            .retry(
                Retry::attempts(4)
                    .initial_interval(Duration::from_secs(1))
                    .max_interval(Duration::from_secs(9))
                    .coefficient(1.5)
                    .linear()
                    .jitter(false)
                    .never_for(["bad"])
                    .dead_letter(),
            )
            .idempotency_key("k");
        let (sent, key) = job.into_parts().unwrap();
        assert_eq!(key.as_deref(), Some("k"));
        assert_eq!(
            sent,
            json!({
                "type": "t", "args": [1, "two"], "meta": {"trace": "abc"},
                "options": {
                    "queue": "q", "priority": -5, "delay_ms": 1500, "timeout_ms": 2000,
                    "expires_at": "+PT1M30S", "keys": {"tenant": "42", "account": "acme"},
                    "resources": {"memory": 67_108_864, "cpu": 0.5, "processes": 8},
                    "retry": {
                        "max_attempts": 4, "initial_interval_ms": 1000, "max_interval_ms": 9000,
                        "backoff_coefficient": 1.5, "backoff_strategy": "linear",
                        "jitter": false, "non_retryable_errors": ["bad"],
                        "on_exhaustion": "dead_letter"
                    }
                }
            })
        );
    }

    #[test]
    fn the_last_word_about_the_time_counts() {
        let at = UNIX_EPOCH + Duration::from_secs(5);
        let (sent, _) =
            NewJob::new("t", 1).delay(Duration::from_secs(1)).at(at).into_parts().unwrap();
        assert_eq!(sent["options"], json!({"scheduled_at": "1970-01-01T00:00:05Z"}));
    }

    #[test]
    fn arguments_that_are_no_list_are_refused_before_they_are_sent() {
        let refused = NewJob::positional("t", 1).into_parts();
        assert!(matches!(refused, Err(ClientError::Usage { .. })), "{refused:?}");
    }
}
