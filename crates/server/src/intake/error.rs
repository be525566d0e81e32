//! Why a request becomes no job.

use outlast_packs::{PackSet, Violation};
use outlast_wire::Fault;
use outlast_wire::ojs::error::Code;
use serde_json::{Value, json};

/// Why a request becomes no job.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IntakeError {
    /// A field is wrong.
    #[error(transparent)]
    Invalid(#[from] Fault),
    /// The action has a fault in its definition.
    #[error("action {reference} is faulty and left out: {fault}")]
    FaultyAction { reference: String, fault: String },
    /// No action has that name.
    #[error("action {reference} is not known{}", suggestion(.nearest.as_deref()))]
    UnknownAction { reference: String, nearest: Option<String> },
    /// The action is disabled.
    #[error("action {reference} is switched off")]
    DisabledAction { reference: String },
    /// The parameters break the action's rules.
    #[error("parameters of {reference} are not as required: {}", list(.violations))]
    InvalidParameters { reference: String, violations: Vec<Violation> },
}

impl IntakeError {
    /// Returns why there is no such action, with the name that may be meant.
    pub(crate) fn no_action(packs: &PackSet, reference: &str) -> Self {
        let nearest = packs.nearest(reference).map(ToOwned::to_owned);
        let reference = reference.to_owned();
        match packs.fault_of(&reference) {
            Some(fault) => Self::FaultyAction { reference, fault: fault.to_string() },
            None => Self::UnknownAction { reference, nearest },
        }
    }

    /// Returns the code on the wire.
    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::Invalid(fault) => Code::of(fault.kind),
            Self::FaultyAction { .. } | Self::UnknownAction { .. } => Code::NotFound,
            Self::DisabledAction { .. } => Code::Conflict,
            Self::InvalidParameters { .. } => Code::ValidationError,
        }
    }

    /// Returns more about it.
    pub(crate) fn details(&self) -> Option<Value> {
        match self {
            Self::InvalidParameters { violations, .. } => Some(json!({ "violations": violations })),
            Self::UnknownAction { .. } | Self::FaultyAction { .. } => {
                Some(json!({ "resource": "action" }))
            }
            Self::Invalid(_) | Self::DisabledAction { .. } => None,
        }
    }
}

/// Returns the end of an error about a name that is not known: the name that may be meant.
pub(crate) fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

fn list(violations: &[Violation]) -> String {
    violations.iter().map(Violation::to_string).collect::<Vec<_>>().join("; ")
}
