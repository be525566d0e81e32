//! The envelope's fields as they came in, borrowed from the body, and their check.

use std::borrow::Cow;
use std::fmt;

use outlast_core::limits::META_BYTES_MAX;
use outlast_core::selector::Placement;
use outlast_core::time::Span;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    Envelope, FirstWanted, flag, keys_of, length, millis, overlap, policy, priority, queue,
    resources_of, selector, text_of, unique_of, when,
};
use crate::fault::Fault;
use crate::json;
use crate::ojs::names;
use crate::time::When;

/// Fields that the server manages: what a client sends in them is not kept.
const MANAGED: &[&str] = &[
    "state",
    "attempt",
    "max_attempts",
    "created_at",
    "enqueued_at",
    "started_at",
    "completed_at",
    "cancelled_at",
    "discarded_at",
    "next_attempt_at",
    "retry_delay_ms",
    "result",
    "error",
    "errors",
    "epoch",
    "lease",
    "enqueued_by",
];

/// One job as it came in. Fields of the value `null` count as missing.
#[derive(Debug, Default)]
pub struct Received<'a> {
    job_type: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    args: Option<&'a RawValue>,
    meta: Option<&'a RawValue>,
    options: Option<&'a RawValue>,
    wanted: Wanted<'a>,
    unknown: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// What options ask for, wherever they were.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted<'a> {
    queue: Option<&'a RawValue>,
    priority: Option<&'a RawValue>,
    timeout_ms: Option<&'a RawValue>,
    timeout: Option<&'a RawValue>,
    visibility_timeout_ms: Option<&'a RawValue>,
    visibility_timeout: Option<&'a RawValue>,
    scheduled_at: Option<&'a RawValue>,
    delay_until: Option<&'a RawValue>,
    delay: Option<&'a RawValue>,
    delay_ms: Option<&'a RawValue>,
    expires_at: Option<&'a RawValue>,
    retry: Option<&'a RawValue>,
    overlap: Option<&'a RawValue>,
    keys: Option<&'a RawValue>,
    requires: Option<&'a RawValue>,
    prefers: Option<&'a RawValue>,
    resources: Option<&'a RawValue>,
    pending: Option<&'a RawValue>,
    unique: Option<&'a RawValue>,
    rate_limit: Option<&'a RawValue>,
}

impl<'a> Wanted<'a> {
    fn slot(&mut self, name: &str) -> Option<&mut Option<&'a RawValue>> {
        Some(match name {
            "queue" => &mut self.queue,
            "priority" => &mut self.priority,
            "timeout_ms" => &mut self.timeout_ms,
            "timeout" => &mut self.timeout,
            "visibility_timeout_ms" => &mut self.visibility_timeout_ms,
            "visibility_timeout" => &mut self.visibility_timeout,
            "scheduled_at" => &mut self.scheduled_at,
            "delay_until" => &mut self.delay_until,
            "delay" => &mut self.delay,
            "delay_ms" => &mut self.delay_ms,
            "expires_at" => &mut self.expires_at,
            "retry" => &mut self.retry,
            "overlap" => &mut self.overlap,
            "keys" => &mut self.keys,
            "requires" => &mut self.requires,
            "prefers" => &mut self.prefers,
            "resources" => &mut self.resources,
            "pending" => &mut self.pending,
            "unique" => &mut self.unique,
            "rate_limit" => &mut self.rate_limit,
            _ => return None,
        })
    }
}

impl<'a> Received<'a> {
    /// Checks everything and returns the job that is wanted.
    ///
    /// # Errors
    /// Returns the first thing that is wrong.
    pub fn check(&self) -> Result<Envelope<'a>, Fault> {
        let job_type = present("type", self.job_type)?;
        let job_type = text_of(job_type).ok_or_else(|| Fault::field("type", "must be a text"))?;
        names::job_type(&job_type)?;
        let args = present("args", self.args)?.get();
        if !args.starts_with('[') {
            return Err(Fault::field("args", "must be an array"));
        }
        let meta = self.meta.map_or("", RawValue::get);
        if !meta.is_empty() && !meta.starts_with('{') {
            return Err(Fault::field("meta", "must be an object"));
        }
        if meta.len() > META_BYTES_MAX {
            let problem = format!("is {} bytes long, {META_BYTES_MAX} are allowed", meta.len());
            return Err(Fault::size("meta", problem));
        }
        let id = self.id.map(|raw| names::new_id(&text_of(raw).unwrap_or_default())).transpose()?;
        let (wanted, options) = self.options()?;
        if wanted.rate_limit.is_some() {
            return Err(Fault::unsupported("rate_limit"));
        }
        Ok(Envelope {
            id,
            job_type,
            args,
            meta,
            queue: wanted.queue.map(queue).transpose()?,
            priority: wanted.priority.map(priority).transpose()?,
            timeout: either("timeout", wanted.timeout_ms, wanted.timeout)?,
            visibility: either(
                "visibility_timeout",
                wanted.visibility_timeout_ms,
                wanted.visibility_timeout,
            )?,
            first: wanted.first()?,
            expires: wanted.expires_at.map(|raw| when("expires_at", raw)).transpose()?,
            retry: wanted.retry.map(policy).transpose()?,
            overlap: wanted.overlap.map(overlap).transpose()?,
            keys: wanted.keys.map(keys_of).transpose()?.unwrap_or_default(),
            placement: Placement {
                requires: selector("requires", wanted.requires)?,
                prefers: selector("prefers", wanted.prefers)?,
            },
            resources: wanted.resources.map(resources_of).transpose()?.unwrap_or_default(),
            unique: wanted.unique.map(unique_of).transpose()?,
            extra: self.extra(options),
        })
    }

    /// Returns what the options ask for, with the root's for those that are absent.
    fn options(&self) -> Result<(Wanted<'a>, Option<&'a str>), Fault> {
        let mut wanted = self.wanted;
        let Some(options) = self.options.map(RawValue::get) else { return Ok((wanted, None)) };
        if !options.starts_with('{') {
            return Err(Fault::field("options", "must be an object"));
        }
        let options_read: Options<'a> =
            serde_json::from_str(options).map_err(|error| json::syntax(&error))?;
        for (name, value) in options_read.0 {
            if let Some(slot) = wanted.slot(&name) {
                *slot = Some(value);
            }
        }
        Ok((wanted, Some(options)))
    }

    fn extra(&self, options: Option<&str>) -> String {
        if options.is_none() && self.unknown.is_empty() {
            return String::new();
        }
        let mut out = Vec::with_capacity(64 + options.map_or(0, str::len));
        let mut object = json::Object::begin(&mut out);
        if let Some(options) = options {
            object.raw("options", options);
        }
        for (name, value) in &self.unknown {
            object.raw(name, value.get());
        }
        object.end();
        // Built from texts only.
        String::from_utf8(out).unwrap_or_default()
    }
}

impl<'a> Wanted<'a> {
    fn first(&self) -> Result<Option<FirstWanted>, Fault> {
        let pending = self.pending.map_or(Ok(false), |raw| flag("pending", raw))?;
        match (pending, self.time()?) {
            (false, time) => Ok(time.map(FirstWanted::At)),
            (true, None) => Ok(Some(FirstWanted::OnActivation)),
            (true, Some(_)) => {
                let problem = "must be left out of a job with a time: it runs once it is activated";
                Err(Fault::rule("pending", problem))
            }
        }
    }

    fn time(&self) -> Result<Option<When>, Fault> {
        if let Some(raw) = self.scheduled_at {
            return when("scheduled_at", raw).map(Some);
        }
        if let Some(raw) = self.delay_until {
            return when("delay_until", raw).map(Some);
        }
        let delay = match (self.delay_ms, self.delay) {
            (Some(raw), _) => Some(millis("delay_ms", raw)?),
            (None, Some(raw)) => Some(length("delay", raw)?),
            (None, None) => None,
        };
        Ok(delay.map(When::In))
    }
}

fn present<'a>(field: &str, raw: Option<&'a RawValue>) -> Result<&'a RawValue, Fault> {
    raw.ok_or_else(|| Fault::field(field, "is missing"))
}

fn either(
    field: &str,
    in_millis: Option<&RawValue>,
    duration: Option<&RawValue>,
) -> Result<Option<Span>, Fault> {
    match (in_millis, duration) {
        (Some(raw), _) => millis(&format!("{field}_ms"), raw).map(Some),
        (None, Some(raw)) => length(field, raw).map(Some),
        (None, None) => Ok(None),
    }
}

/// Fields of `options`, nulls left out.
struct Options<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A field's name, borrowed where it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field's name")
            }
            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(name)))
            }
            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

impl<'de> Deserialize<'de> for Options<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Options<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of options")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<Name<'de>, &RawValue>()? {
                    if value.get() != "null" {
                        fields.push((name.0, value));
                    }
                }
                Ok(Options(fields))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Received<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Received<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a job, which is an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut received = Received::default();
                while let Some(Name(name)) = map.next_key()? {
                    received.take(name, &mut map)?;
                }
                Ok(received)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

impl<'de> Received<'de> {
    fn take<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
    ) -> Result<(), A::Error> {
        let slot = match &*name {
            "type" => &mut self.job_type,
            "id" => &mut self.id,
            "args" => &mut self.args,
            "meta" => &mut self.meta,
            "options" => &mut self.options,
            other => {
                if MANAGED.contains(&other) || other == "specversion" {
                    return map.next_value::<IgnoredAny>().map(|_| ());
                }
                let value: &RawValue = map.next_value()?;
                if value.get() != "null"
                    && let Some(slot) = self.wanted.slot(other)
                {
                    *slot = Some(value);
                }
                self.unknown.push((name, value));
                return Ok(());
            }
        };
        if slot.is_some() {
            return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
        }
        // An id of `null` asks for none; a type or args of `null` are missing.
        let value: &RawValue = map.next_value()?;
        *slot = Some(value).filter(|value| value.get() != "null");
        Ok(())
    }
}
