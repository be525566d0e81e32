//! Limits: which jobs an operator allows to run at a time, or to start in a period.
//!
//! ```text
//! limit  stripe   type payments.charge   rate 100/1m    one gate:            stripe
//! limit  tenant   key tenant             5 at a time    a gate for a value:  tenant:42, tenant:43
//! ```
//!
//! A job passes the gates of all limits that apply to it, or none ([`crate::gate`]). Which they are
//! is determined when it is claimed, so a new limit reaches the jobs that are stored already.

use std::fmt;

use uuid::Uuid;

use crate::gate::Rate;
use crate::keys::{Keys, NAME_BYTES_MAX, is_name};

/// Most limits at a time: each claim of a job that has keys looks at all of them.
pub const LIMITS_MAX: usize = 1_000;

/// The name of a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitName(String);

/// A text is no name of a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of a limit: it has 1 to {NAME_BYTES_MAX} characters out of a-z, 0-9, _ . -, and \
     is neither . nor .."
)]
pub struct LimitNameError(String);

impl LimitName {
    /// Checks a name. It is part of a URL, from which clients take `.` and `..` away.
    ///
    /// # Errors
    /// Returns what a name may consist of.
    pub fn new(name: &str) -> Result<Self, LimitNameError> {
        if is_name(name) && !matches!(name, "." | "..") {
            Ok(Self(name.to_owned()))
        } else {
            Err(LimitNameError(name.to_owned()))
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which jobs a limit applies to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Those of a queue, together.
    Queue(String),
    /// Those of a type, or of an action, together.
    Type(String),
    /// Those that have a key of this name: those with the same value together.
    Key(String),
}

impl Scope {
    /// Returns the word for its kind, in the API and the store.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Queue(_) => "queue",
            Self::Type(_) => "type",
            Self::Key(_) => "key",
        }
    }

    /// Returns the name of the queue, type or key.
    #[must_use]
    pub fn of(&self) -> &str {
        match self {
            Self::Queue(of) | Self::Type(of) | Self::Key(of) => of,
        }
    }

    /// Returns the scope of this kind and name, if there is such a kind.
    #[must_use]
    pub fn parse(kind: &str, of: &str) -> Option<Self> {
        let of = of.to_owned();
        match kind {
            "queue" => Some(Self::Queue(of)),
            "type" => Some(Self::Type(of)),
            "key" => Some(Self::Key(of)),
            _ => None,
        }
    }
}

/// How many jobs may run at a time or start in a period, of those in a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its name.
    pub name: LimitName,
    /// Which jobs it applies to.
    pub scope: Scope,
    /// Most attempts at a time; 0 lets none start. `None` is no bound.
    pub concurrency: Option<u32>,
    /// Most starts in a period; `None` is no bound.
    pub rate: Option<Rate>,
}

/// What a limit may look at of a job.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its queue.
    pub queue: &'a str,
    /// Its type, or the reference of its action.
    pub job_type: &'a str,
    /// Its keys.
    pub keys: &'a Keys,
}

/// Number of a gate: derived from the limit and, of a limit on a key, the value. The same on every
/// server and forever, so that nothing needs to be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GateId(pub i64);

/// A gate that a job must pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateOf<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// The value of its key, if it is a limit on a key.
    pub value: Option<&'a str>,
}

impl Limit {
    /// Returns the gate that a job must pass because of this limit, if it applies.
    #[must_use]
    pub fn gate_of<'a>(&'a self, job: Subject<'a>) -> Option<GateOf<'a>> {
        let value = match &self.scope {
            Scope::Queue(queue) => (queue == job.queue).then_some(None),
            Scope::Type(job_type) => (job_type == job.job_type).then_some(None),
            Scope::Key(name) => job.keys.get(name).map(Some),
        };
        value.map(|value| GateOf { limit: self, value })
    }

    /// Returns whether this limit may apply to jobs of a queue and type, with or without keys.
    #[must_use]
    pub fn may_apply(&self, queue: &str, job_type: &str, keyed: bool) -> bool {
        match &self.scope {
            Scope::Queue(of) => of == queue,
            Scope::Type(of) => of == job_type,
            Scope::Key(_) => keyed,
        }
    }
}

impl GateOf<'_> {
    /// Returns the number of the gate.
    #[must_use]
    pub fn id(&self) -> GateId {
        let Limit { name, scope, .. } = self.limit;
        let mut text = Vec::new();
        let value = self.value.unwrap_or_default();
        for part in [name.as_str(), scope.kind(), scope.of(), value] {
            // Lengths keep parts apart.
            text.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
            text.extend(part.as_bytes());
        }
        let (high, _) = Uuid::new_v5(&GATES, &text).as_u64_pair();
        GateId(i64::try_from(high >> 1).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for GateOf<'_> {
    /// Writes `name`, or `name:value`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "{}:{value}", self.limit.name),
            None => write!(f, "{}", self.limit.name),
        }
    }
}

/// The namespace of gates (RFC 9562, section 5.5).
const GATES: Uuid = Uuid::from_u128(0x0c57_93de_8a1b_4f0e_b6f2_27d4_9e60_1b5c);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn limit(name: &str, scope: Scope) -> Limit {
        Limit { name: LimitName::new(name).unwrap(), scope, concurrency: Some(1), rate: None }
    }

    fn tenant(value: &str) -> Keys {
        Keys::new(BTreeMap::from([("tenant".into(), value.into())])).unwrap()
    }

    #[test]
    fn limit_applies_to_its_queue_its_type_or_each_value_of_its_key() {
        let keys = tenant("42");
        let job = Subject { queue: "mail", job_type: "send", keys: &keys };
        let gate = |scope| limit("l", scope).gate_of(job).map(|gate| gate.to_string());
        assert_eq!(gate(Scope::Queue("mail".into())).as_deref(), Some("l"));
        assert_eq!(gate(Scope::Queue("other".into())), None);
        assert_eq!(gate(Scope::Type("send".into())).as_deref(), Some("l"));
        assert_eq!(gate(Scope::Type("mail".into())), None);
        assert_eq!(gate(Scope::Key("tenant".into())).as_deref(), Some("l:42"));
        assert_eq!(gate(Scope::Key("account".into())), None);
    }

    #[test]
    fn gates_are_numbered_the_same_forever() {
        // Attempts carry these numbers in the store: a change would leak what they hold.
        let keys = tenant("42");
        let job = Subject { queue: "mail", job_type: "send", keys: &keys };
        let per_tenant = limit("tenant", Scope::Key("tenant".into()));
        let gate = per_tenant.gate_of(job).unwrap();
        assert_eq!(gate.id(), GateId(1_629_441_020_970_969_654));
    }

    #[test]
    fn gates_of_other_limits_scopes_and_values_differ() {
        let (one, two) = (tenant("1"), tenant("2"));
        let subject = |keys| Subject { queue: "mail", job_type: "mail", keys };
        let (first, second) = (subject(&one), subject(&two));
        let key = Scope::Key("tenant".into());
        let mut all = [
            limit("a", key.clone()).gate_of(first).unwrap().id(),
            limit("a", key.clone()).gate_of(second).unwrap().id(),
            limit("b", key).gate_of(first).unwrap().id(),
            limit("a", Scope::Queue("mail".into())).gate_of(first).unwrap().id(),
            limit("a", Scope::Type("mail".into())).gate_of(first).unwrap().id(),
        ];
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
        assert!(all[0].0 >= 0);
    }

    #[test]
    fn name_of_a_limit_is_checked() {
        assert!(LimitName::new("tenant_1.x-y").is_ok() && LimitName::new("...").is_ok());
        for dots in [".", ".."] {
            let refused = LimitName::new(dots).unwrap_err().to_string();
            assert!(refused.ends_with("and is neither . nor .."), "{refused}");
        }
        let refused = LimitName::new("Tenant").unwrap_err().to_string();
        assert!(refused.contains("\"Tenant\" is no name of a limit"), "{refused}");
    }
}
