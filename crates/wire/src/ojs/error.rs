//! The error catalogue: every code that a client may see, with what to do about it.

use crate::FaultKind;
use crate::json::Object;

/// Where each code is explained.
const DOCS: &str = "https://openjobspec.org/docs/errors";

/// Codes of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The body is missing, not JSON, or nested too deeply.
    InvalidPayload,
    /// A field is missing or not what it must be.
    InvalidRequest,
    /// A retry policy or an action's parameters break a rule.
    ValidationError,
    /// The body is longer than allowed.
    PayloadTooLarge,
    /// The body took too long to come.
    RequestTimeout,
    /// No bearer token, or none that the server knows.
    Unauthenticated,
    /// The token's role does not allow it.
    PermissionDenied,
    /// There is no such thing.
    NotFound,
    /// The path knows other methods.
    MethodNotAllowed,
    /// A job of that id is known, or one that has its unique key.
    Duplicate,
    /// The thing's state does not allow this, or someone else holds it.
    Conflict,
    /// A bounded queue has no room for the request.
    QueueFull,
    /// The standard knows it; this server does not offer it.
    Unsupported,
    /// The store cannot be reached now.
    Unavailable,
    /// A fault of the server.
    Internal,
}

impl Code {
    /// Every code.
    pub const ALL: [Self; 15] = [
        Self::InvalidPayload,
        Self::InvalidRequest,
        Self::ValidationError,
        Self::PayloadTooLarge,
        Self::RequestTimeout,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Duplicate,
        Self::Conflict,
        Self::QueueFull,
        Self::Unsupported,
        Self::Unavailable,
        Self::Internal,
    ];

    /// Returns the code of faults of this sort.
    #[must_use]
    pub const fn of(kind: FaultKind) -> Self {
        match kind {
            FaultKind::Payload => Self::InvalidPayload,
            FaultKind::Request => Self::InvalidRequest,
            FaultKind::Rule => Self::ValidationError,
            FaultKind::Unsupported => Self::Unsupported,
            FaultKind::Size => Self::PayloadTooLarge,
        }
    }

    /// Returns the code on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidPayload => "invalid_payload",
            Self::InvalidRequest => "invalid_request",
            Self::ValidationError => "validation_error",
            Self::PayloadTooLarge => "payload_too_large",
            Self::RequestTimeout => "request_timeout",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::Duplicate => "duplicate",
            Self::Conflict => "conflict",
            // The standard's extension writes it so.
            Self::QueueFull => "QUEUE_FULL",
            Self::Unsupported => "unsupported",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal_error",
        }
    }

    /// Returns what it says, in a few words.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::InvalidPayload => "the body is missing, not JSON, or nested too deeply",
            Self::InvalidRequest => {
                "a field, parameter or header is missing or not what it must be"
            }
            Self::ValidationError => "a retry policy or an action's parameters break a rule",
            Self::PayloadTooLarge => "the body is longer than `server.max_body`",
            Self::RequestTimeout => "the body took too long to arrive",
            Self::Unauthenticated => "no bearer token, or none that the server knows",
            Self::PermissionDenied => "the token's role does not allow it",
            Self::NotFound => "it does not exist",
            Self::MethodNotAllowed => "the path does not support this method",
            Self::Duplicate => "a job with that id exists already, or one with the same unique key",
            Self::Conflict => "its state does not allow this, or another client holds it",
            Self::QueueFull => "the queue's `max_depth` leaves no room for the request",
            Self::Unsupported => "the standard defines it, but this server does not offer it",
            Self::Unavailable => "the store cannot be reached now, or the server is stopping",
            Self::Internal => "an error in the server",
        }
    }

    /// Returns whether the same request may succeed later.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::RequestTimeout | Self::QueueFull)
    }

    /// Returns what to do about it where nothing more precise is known.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self {
            Self::InvalidPayload => "send one JSON document in UTF-8",
            Self::InvalidRequest => "correct the field that the message names",
            Self::ValidationError => "correct what `details` or the message names",
            Self::PayloadTooLarge => "keep large data elsewhere and send a reference to it",
            Self::RequestTimeout => "send the whole body without long pauses",
            Self::Unauthenticated => {
                "send `Authorization: Bearer TOKEN`; the command line takes --token or OUTLAST_TOKEN"
            }
            Self::PermissionDenied => "use a token of a role that the message names",
            Self::NotFound => "check the id, name or path",
            Self::MethodNotAllowed => "use a method that the `Allow` header lists",
            Self::Duplicate => "leave `id` out to get a new one, or look the job up by its id",
            Self::Conflict => "look it up: the message names the state that does not allow this",
            Self::QueueFull => {
                "send it again after the time in `Retry-After`: workers make room as they take jobs"
            }
            Self::Unsupported => "see /ojs/manifest for what this server offers",
            Self::Unavailable => "try again after the time in `Retry-After`",
            Self::Internal => "report it with its `request_id`",
        }
    }
}

/// An error as it is shown.
#[derive(Clone, Debug)]
pub struct ErrorBody<'a> {
    /// Code.
    pub code: Code,
    /// What is wrong, naming the thing.
    pub message: &'a str,
    /// JSON: more about it.
    pub details: Option<&'a str>,
    /// The request, for finding it in the server's log.
    pub request_id: &'a str,
    /// What to do about it.
    pub hint: &'a str,
}

impl ErrorBody<'_> {
    /// Writes the error as a document.
    #[must_use]
    pub fn document(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(320);
        let mut object = Object::begin(&mut out);
        object.object("error", |object| {
            object.text("code", self.code.as_str());
            object.text("type", self.code.as_str());
            object.text("message", self.message);
            object.flag("retryable", self.code.is_retryable());
            object.text("request_id", self.request_id);
            object.text("hint", self.hint);
            object.text("docs_url", &format!("{DOCS}#{}", self.code.as_str()));
            if let Some(details) = self.details {
                object.raw("details", details);
            }
        });
        object.end();
        out
    }
}
