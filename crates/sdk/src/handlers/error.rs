//! Why a handler failed.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// Any error. A handler may return anything that converts to one: errors, texts,
/// [`HandlerError`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error that decides what happens to the job. Any other error has the type `error` and is
/// retried by the job's retry policy.
///
/// ```
/// # use outlast_sdk::{BoxError, HandlerError};
/// fn charge(cents: u64) -> Result<(), BoxError> {
///     if cents == 0 {
///         return Err(HandlerError::permanent("nothing_to_charge", "amount is zero").into());
///     }
///     std::fs::read("/no/such/key")?; // another attempt may find it
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HandlerError(pub(super) Box<ErrorDetail>);

/// What an error says about the job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ErrorDetail {
    pub(super) error_type: String,
    pub(super) message: String,
    pub(super) details: Value,
    pub(super) retryable: bool,
}

impl HandlerError {
    /// An error that another attempt may overcome. `error_type` is a short fixed code for retry
    /// policies and dashboards; the message is for people.
    pub fn new(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        Self(Box::new(ErrorDetail {
            error_type: error_type.into(),
            message: message.into(),
            details: Value::Null,
            retryable: true,
        }))
    }

    /// An error that no other attempt can overcome: the job fails for good.
    pub fn permanent(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        let mut error = Self::new(error_type, message);
        error.0.retryable = false;
        error
    }

    /// Adds more about it. What cannot be written as JSON is left out.
    #[must_use]
    pub fn with_details(mut self, details: impl Serialize) -> Self {
        self.0.details = serde_json::to_value(details).unwrap_or_default();
        self
    }

    /// Whether another attempt may overcome it.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for HandlerError {}
