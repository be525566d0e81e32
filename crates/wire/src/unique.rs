//! Unique jobs in a request: `"unique": {"keys": ["type", "args"], "on_conflict": "ignore"}`.
//!
//! What makes two jobs the same is written as one text: an object of the parts that the policy
//! names, without whitespace, sorted by key at every depth, its texts in Unicode's NFC.

use std::collections::BTreeMap;

use outlast_core::job::State;
use outlast_core::time::Span;
use outlast_core::unique::{OnConflict, States};
use serde_json::{Map, Number, Value};
use unicode_normalization::UnicodeNormalization as _;

use crate::duration;
use crate::fault::Fault;
use crate::json::fields::given;

/// Fields of a policy.
const KNOWN: &[&str] = &["keys", "args_keys", "meta_keys", "period", "states", "on_conflict"];
/// Most fields of `args` or `meta` that a policy names.
const NAMES_MAX: usize = 64;

/// A policy as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniquePolicy {
    /// Whether jobs of other queues are other jobs.
    pub queue: bool,
    /// What counts of the arguments.
    pub args: Part,
    /// Which fields of `meta` count.
    pub meta: Vec<String>,
    /// For how long after it was stored a job is in the way of others.
    pub period: Option<Span>,
    /// In which states it is.
    pub states: States,
    /// What becomes of a new job then.
    pub on_conflict: OnConflict,
}

/// What counts of the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Nothing.
    Nothing,
    /// All of them.
    Everything,
    /// These fields of the first argument that is an object.
    Fields(Vec<String>),
}

/// A job of which the text is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its type. It always counts.
    pub job_type: &'a str,
    /// Its queue.
    pub queue: &'a str,
    /// JSON: its arguments.
    pub args: &'a str,
    /// JSON object: its `meta`; empty when there is none.
    pub meta: &'a str,
    /// Its tenant. It always counts.
    pub tenant: Option<&'a str>,
}

/// Reads a policy.
///
/// # Errors
/// Returns what is wrong with it.
pub fn read(value: &Value) -> Result<UniquePolicy, Fault> {
    let Value::Object(fields) = value else {
        let problem = "must be an object such as `{\"keys\": [\"type\", \"args\"]}`";
        return Err(Fault::field("unique", problem));
    };
    if let Some(name) = fields.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        let problem = format!("is not known; known fields are {}", KNOWN.join(", "));
        return Err(Fault::field(&format!("unique.{name}"), problem));
    }
    let keys = texts(fields, "keys")?.unwrap_or_else(|| vec!["type".to_owned()]);
    if let Some(other) = keys.iter().find(|it| !["type", "queue", "args", "meta"].contains(&&***it))
    {
        let problem = format!("names `{other}`; it may name `type`, `queue`, `args` and `meta`");
        return Err(Fault::field("unique.keys", problem));
    }
    let has = |name: &str| keys.iter().any(|key| key == name);
    let args_keys = texts(fields, "args_keys")?.filter(|names| !names.is_empty());
    let meta_keys = texts(fields, "meta_keys")?.filter(|names| !names.is_empty());
    for (field, given, part) in
        [("args_keys", args_keys.is_some(), "args"), ("meta_keys", meta_keys.is_some(), "meta")]
    {
        if given && !has(part) {
            let problem = format!("has no effect without `{part}` in `unique.keys`");
            return Err(Fault::field(&format!("unique.{field}"), problem));
        }
    }
    if has("meta") && meta_keys.is_none() {
        let problem = "must name the fields of `meta` that count";
        return Err(Fault::field("unique.meta_keys", problem));
    }
    Ok(UniquePolicy {
        queue: has("queue"),
        args: match args_keys {
            Some(names) => Part::Fields(names),
            None if has("args") => Part::Everything,
            None => Part::Nothing,
        },
        meta: meta_keys.unwrap_or_default(),
        period: given(fields, "period").map(period).transpose()?,
        states: states(fields)?,
        on_conflict: given(fields, "on_conflict").map_or(Ok(OnConflict::Reject), on_conflict)?,
    })
}

fn texts(fields: &Map<String, Value>, name: &str) -> Result<Option<Vec<String>>, Fault> {
    let Some(value) = given(fields, name) else { return Ok(None) };
    let texts = value.as_array().and_then(|all| {
        all.iter().map(|text| text.as_str().map(ToOwned::to_owned)).collect::<Option<Vec<_>>>()
    });
    let field = format!("unique.{name}");
    let texts = texts.ok_or_else(|| Fault::field(&field, "must be an array of texts"))?;
    if texts.len() > NAMES_MAX {
        let problem = format!("names {} fields; at most {NAMES_MAX} are taken", texts.len());
        return Err(Fault::field(&field, problem));
    }
    Ok(Some(texts))
}

fn period(value: &Value) -> Result<Span, Fault> {
    let span = duration::value(value).filter(|span| span.0 > 0);
    span.ok_or_else(|| {
        Fault::field("unique.period", "must be a duration longer than 0, such as `PT1H`")
    })
}

fn states(fields: &Map<String, Value>) -> Result<States, Fault> {
    let Some(words) = texts(fields, "states")? else { return Ok(States::LIVE) };
    let mut states = States::EMPTY;
    for word in &words {
        let state = State::parse(word).ok_or_else(|| {
            let known: Vec<&str> = State::ALL.iter().map(|state| state.as_str()).collect();
            let problem = format!("names `{word}`; states are {}", known.join(", "));
            Fault::field("unique.states", problem)
        })?;
        states = states.with(state);
    }
    if states.is_empty() {
        return Err(Fault::field("unique.states", "must name at least one state"));
    }
    Ok(states)
}

fn on_conflict(value: &Value) -> Result<OnConflict, Fault> {
    value.as_str().and_then(OnConflict::parse).ok_or_else(|| {
        let words: Vec<&str> = OnConflict::ALL.iter().map(|it| it.as_str()).collect();
        Fault::field("unique.on_conflict", format!("must be one of {}", words.join(", ")))
    })
}

impl UniquePolicy {
    /// Returns the text that is the same for jobs that this policy takes for the same.
    ///
    /// # Errors
    /// Returns which field the arguments do not have.
    pub fn text_of(&self, job: &Subject<'_>) -> Result<String, Fault> {
        let mut parts = BTreeMap::new();
        parts.insert("type", Value::from(job.job_type));
        if let Some(tenant) = job.tenant {
            parts.insert("tenant", Value::from(tenant));
        }
        if self.queue {
            parts.insert("queue", Value::from(job.queue));
        }
        match &self.args {
            Part::Nothing => {}
            Part::Everything => drop(parts.insert("args", json("args", job.args)?)),
            Part::Fields(names) => {
                parts.insert("args", fields_of(&json("args", job.args)?, names)?);
            }
        }
        if !self.meta.is_empty() {
            let meta = if job.meta.is_empty() { Value::Null } else { json("meta", job.meta)? };
            let found = self
                .meta
                .iter()
                .filter_map(|name| Some((name.clone(), field(&meta, name)?.clone())));
            parts.insert("meta", Value::Object(found.collect()));
        }
        let mut out = String::with_capacity(64);
        let all = parts.into_iter().map(|(name, value)| (name.to_owned(), value));
        write(&Value::Object(all.collect()), &mut out);
        Ok(out)
    }
}

/// Reads what is compared. Half of a surrogate pair, or a number beyond a double, may be passed on
/// to workers, but cannot be compared.
fn json(name: &str, text: &str) -> Result<Value, Fault> {
    serde_json::from_str(text).map_err(|error| {
        Fault::rule(name, format!("cannot be compared with those of other jobs: {error}"))
    })
}

/// Finds a field by name, however its letters are composed.
fn field<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let fields = object.as_object()?;
    let same = |other: &String| other.nfc().eq(name.nfc());
    fields.get(name).or_else(|| fields.iter().find(|(other, _)| same(other)).map(|(_, it)| it))
}

/// Returns fields of the first argument that is an object.
fn fields_of(args: &Value, names: &[String]) -> Result<Value, Fault> {
    let object = match args {
        Value::Array(args) => args.iter().find(|it| it.is_object()),
        other => Some(other),
    };
    let mut found = Map::new();
    for name in names {
        let value = object.and_then(|object| field(object, name)).ok_or_else(|| {
            let problem = format!("names `{name}`, which the arguments do not have");
            Fault::field("unique.args_keys", problem)
        })?;
        found.insert(name.clone(), value.clone());
    }
    Ok(Value::Object(found))
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
        Value::Number(number) => out.push_str(&plain(number)),
        Value::String(text) => write_text(text, out),
        Value::Array(items) => {
            out.push('[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let sorted: BTreeMap<String, &Value> =
                fields.iter().map(|(name, value)| (name.nfc().collect(), value)).collect();
            out.push('{');
            for (n, (name, value)) in sorted.into_iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                write_text(&name, out);
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    let text: String = text.nfc().collect();
    out.push_str(&Value::String(text).to_string());
}

/// Writes a number so that `1` and `1.0` are the same. Whole numbers keep all their digits: ids
/// may have more than a double holds.
fn plain(number: &Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        // As RFC 8785 has it: without a fraction and, below this, without an exponent.
        Some(double) if double.abs() < 1e21 && double.fract() == 0.0 => {
            // Minus zero is zero.
            format!("{}", double + 0.0)
        }
        Some(_) | None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(policy: Value, args: &str, meta: &str) -> String {
        let (job_type, queue, tenant) = ("email.send", "mail", None);
        let job = Subject { job_type, queue, args, meta, tenant };
        read(&policy).unwrap().text_of(&job).unwrap()
    }

    fn problem(policy: Value) -> String {
        read(&policy).unwrap_err().message
    }

    #[test]
    fn number_is_the_same_however_it_is_written() {
        let key = |number: &str| text(json!({"keys": ["args"]}), &format!("[{number}]"), "");
        for (one, other) in [
            ("1e16", "10000000000000000"),
            ("1.5e20", "150000000000000000000"),
            ("-1E2", "-100.00"),
            ("-0.0", "0"),
            ("1e21", "1000000000000000000000"),
        ] {
            assert_eq!(key(one), key(other));
        }
        assert!(key("1e16").contains("[10000000000000000]"), "{}", key("1e16"));
        assert_ne!(key("9007199254740992"), key("9007199254740993"), "ids keep their digits");
    }

    #[test]
    fn type_always_counts_and_the_rest_as_the_policy_says() {
        let args = r#"[{"user": 42, "text": "hi"}]"#;
        let meta = r#"{"trace": 1, "region": "eu"}"#;
        for (policy, expected) in [
            (json!({}), r#"{"type":"email.send"}"#),
            (json!({"keys": []}), r#"{"type":"email.send"}"#),
            (json!({"keys": ["queue"]}), r#"{"queue":"mail","type":"email.send"}"#),
            (
                json!({"keys": ["args"]}),
                r#"{"args":[{"text":"hi","user":42}],"type":"email.send"}"#,
            ),
            (
                json!({"keys": ["type", "args"], "args_keys": ["user"]}),
                r#"{"args":{"user":42},"type":"email.send"}"#,
            ),
            (
                json!({"keys": ["meta"], "meta_keys": ["region", "zone"]}),
                r#"{"meta":{"region":"eu"},"type":"email.send"}"#,
            ),
        ] {
            assert_eq!(text(policy.clone(), args, meta), expected, "{policy}");
        }
    }

    #[test]
    fn jobs_of_other_tenants_are_other_jobs() {
        let of = |tenant| {
            let job = Subject { job_type: "a", queue: "q", args: "[]", meta: "", tenant };
            read(&json!({})).unwrap().text_of(&job).unwrap()
        };
        assert_ne!(of(Some("acme")), of(Some("globex")));
        assert_ne!(of(Some("acme")), of(None));
    }

    #[test]
    fn order_of_fields_composition_of_letters_and_ways_to_write_a_number_do_not_count() {
        let all = json!({"keys": ["args"]});
        let one = text(all.clone(), r#"[{"b": {"y": 1.0, "x": -0.0}, "é": "é"}]"#, "");
        let same = "[{\"e\\u0301\": \"e\u{301}\", \"b\": {\"x\": 0, \"y\": 1}}]";
        assert_eq!(one, text(all.clone(), same, ""));
        let ids = ["[9007199254740993]", "[9007199254740992]"];
        assert_ne!(text(all.clone(), ids[0], ""), text(all.clone(), ids[1], ""));
        assert_ne!(text(all.clone(), r#"["1"]"#, ""), text(all, "[1]", ""));
    }

    /// The second time, the value was gone, and all jobs had the same text.
    #[test]
    fn field_that_is_named_twice_counts_once() {
        let policy = json!({"keys": ["args", "meta"], "args_keys": ["user", "user"],
            "meta_keys": ["region", "region"]});
        assert_eq!(
            text(policy, r#"[{"user": 42}]"#, r#"{"region": "eu"}"#),
            r#"{"args":{"user":42},"meta":{"region":"eu"},"type":"email.send"}"#
        );
    }

    #[test]
    fn field_is_found_however_its_letters_are_composed() {
        let policy = json!({"keys": ["args"], "args_keys": ["\u{e9}"]});
        assert!(text(policy, "[{\"e\u{301}\": 7}]", "").contains(":7"));
    }

    /// They counted as null, so all jobs with such arguments were the same.
    #[test]
    fn arguments_that_cannot_be_compared_are_refused() {
        let policy = read(&json!({"keys": ["args", "meta"], "meta_keys": ["a"]})).unwrap();
        for (args, meta, part) in
            [(r#"["\ud83d"]"#, "", "`args`"), ("[1e999]", "", "`args`"), ("[]", "{", "`meta`")]
        {
            let job = Subject { job_type: "a", queue: "q", args, meta, tenant: None };
            assert!(policy.text_of(&job).unwrap_err().message.contains(part), "{args} {meta}");
        }
    }

    #[test]
    fn policies_with_slips_are_refused_by_name() {
        for (policy, word) in [
            (json!([]), "`unique`"),
            (json!({"argz": []}), "`unique.argz`"),
            (json!({"keys": ["argz"]}), "`argz`"),
            (json!({"keys": "args"}), "`unique.keys`"),
            (json!({"keys": ["meta"]}), "`unique.meta_keys`"),
            (json!({"args_keys": ["a"]}), "`unique.args_keys`"),
            (json!({"states": ["done"]}), "`done`"),
            (json!({"states": []}), "`unique.states`"),
            (json!({"period": "P1Y"}), "`unique.period`"),
            (json!({"period": 0}), "`unique.period`"),
            (json!({"on_conflict": "raise"}), "`unique.on_conflict`"),
        ] {
            assert!(problem(policy.clone()).contains(word), "{policy}");
        }
        let job = Subject { job_type: "a", queue: "q", args: "[{}]", meta: "", tenant: None };
        let policy = read(&json!({"keys": ["args"], "args_keys": ["user"]})).unwrap();
        assert!(policy.text_of(&job).unwrap_err().message.contains("`user`"));
    }

    #[test]
    fn what_a_policy_leaves_out_is_the_standards() {
        let policy = read(&json!({"period": "PT2S", "states": null})).unwrap();
        assert_eq!((policy.period, policy.states), (Some(Span(2000)), States::LIVE));
        assert_eq!((policy.on_conflict, policy.args), (OnConflict::Reject, Part::Nothing));
    }
}
