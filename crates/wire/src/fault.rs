//! What is wrong with a request, in words that name the field.

/// Something wrong with a request. Nothing has been done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Which sort, for the status code.
    pub kind: FaultKind,
    /// The field at fault, where there is one.
    pub field: Option<String>,
    /// What is wrong with it.
    pub message: String,
}

/// Sorts of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The body is missing, not JSON, or nested too deeply.
    Payload,
    /// A field is missing or not what it must be.
    Request,
    /// A part of the body is longer than allowed.
    Size,
    /// Well formed, and against a rule: a retry policy, an action's parameters.
    Rule,
    /// The standard knows it; this server does not offer it.
    Unsupported,
}

impl Fault {
    /// Returns a fault of the whole body.
    #[must_use]
    pub fn payload(message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Payload, field: None, message: message.into() }
    }

    /// Returns a fault of one field; `problem` completes "field `x` …".
    #[must_use]
    pub fn field(field: &str, problem: impl AsRef<str>) -> Self {
        Self::of(FaultKind::Request, field, problem.as_ref())
    }

    /// Returns the fault of a rule that a field breaks; `problem` completes "field `x` …".
    #[must_use]
    pub fn rule(field: &str, problem: impl AsRef<str>) -> Self {
        Self::of(FaultKind::Rule, field, problem.as_ref())
    }

    /// Returns the fault of a field that this server does not honour.
    #[must_use]
    pub fn unsupported(field: &str) -> Self {
        Self::of(FaultKind::Unsupported, field, "is not supported by this server")
    }

    /// Returns the fault of a field that is too long; `problem` completes "field `x` …".
    #[must_use]
    pub fn size(field: &str, problem: impl AsRef<str>) -> Self {
        Self::of(FaultKind::Size, field, problem.as_ref())
    }

    /// Returns the fault as that of the job at this place of a request with several.
    #[must_use]
    pub fn of_job(self, place: usize) -> Self {
        let job = format!("jobs[{place}]");
        let message = format!("{job}: {}", self.message);
        let field = self.field.map_or_else(|| job.clone(), |field| format!("{job}.{field}"));
        Self { message, field: Some(field), ..self }
    }

    fn of(kind: FaultKind, field: &str, problem: &str) -> Self {
        let message = format!("field `{field}` {problem}");
        Self { kind, field: Some(field.to_owned()), message }
    }
}
