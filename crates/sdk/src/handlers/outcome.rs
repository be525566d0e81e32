//! What a handler returned, as the end of its attempt.

use bytes::Bytes;
use serde::Serialize;

use super::error::{BoxError, ErrorDetail, HandlerError};
use super::job_context::StopSeen;
use crate::outcome::Outcome;
use crate::outcome::StopReason;

pub(super) fn of_handler<R: Serialize, E: Into<BoxError>>(
    returned: Result<R, E>,
    stop: &StopSeen,
) -> Outcome {
    match returned {
        Ok(result) => match serde_json::to_vec(&result) {
            Ok(json) if json == b"null" => Outcome::completed(Bytes::new()),
            Ok(json) => Outcome::completed(json),
            Err(error) => {
                let message = format!("result cannot be written as JSON: {error}");
                Outcome::failed("invalid_result", message).permanently()
            }
        },
        Err(error) => failed(error.into().as_ref(), stop.reason()),
    }
}

/// An attempt that was ordered to stop and then failed has failed because of that, unless it
/// says otherwise.
fn failed(error: &(dyn std::error::Error + 'static), stop: Option<StopReason>) -> Outcome {
    let detail = error_detail(error);
    let text = chain(error);
    match (stop, detail) {
        (_, Some(ErrorDetail { error_type, details, retryable: false, .. })) => {
            with_details(Outcome::failed(error_type, text).permanently(), details)
        }
        (Some(StopReason::Cancelled), _) => Outcome::cancelled(format!("stopped: {text}")),
        (
            Some(
                StopReason::Stale
                | StopReason::DeadlineNear
                | StopReason::Interrupted
                | StopReason::Forced,
            ),
            _,
        ) => Outcome::interrupted(format!("stopped: {text}")),
        (None, Some(ErrorDetail { error_type, details, .. })) => {
            with_details(Outcome::failed(error_type, text), details)
        }
        (None, None) => Outcome::failed("error", text),
    }
}

/// Finds what the handler says about it, whatever it is wrapped in.
fn error_detail<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a ErrorDetail> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(HandlerError(error_detail)) = error.downcast_ref() {
            return Some(error_detail);
        }
        next = error.source();
    }
    None
}

fn with_details(mut outcome: Outcome, details: &serde_json::Value) -> Outcome {
    if let Some(failure) = &mut outcome.failure
        && !details.is_null()
    {
        failure.details_json = details.to_string().into();
    }
    outcome
}

/// The error and its causes, as far as they add something.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::failed;
    use crate::handlers::error::{BoxError, HandlerError};
    use crate::outcome::StopReason;
    use crate::outcome::{Outcome, OutcomeKind};

    #[derive(Debug, thiserror::Error)]
    #[error("mail was not sent")]
    struct Wrapped(#[source] BoxError);

    fn end(error: impl Into<BoxError>, stop: Option<StopReason>) -> Outcome {
        failed(error.into().as_ref(), stop)
    }

    #[test]
    fn an_error_is_told_with_its_causes_and_is_tried_again() {
        let outcome = end(Wrapped("no route".into()), None);
        let failure = outcome.failure.unwrap();
        assert_eq!(failure.error_type, "error");
        assert_eq!(failure.message, "mail was not sent: no route");
        assert!(failure.retryable);
    }

    #[test]
    fn what_the_handler_says_counts_however_deep_it_says_it() {
        let error_detail =
            HandlerError::permanent("bad_address", "no @").with_details(json!({"n": 1}));
        let failure = end(Wrapped(error_detail.into()), None).failure.unwrap();
        assert_eq!(failure.error_type, "bad_address");
        assert_eq!(&failure.details_json[..], br#"{"n":1}"#);
        assert!(!failure.retryable);
    }

    #[test]
    fn an_attempt_that_was_told_to_stop_is_not_charged_for_it() {
        for (reason, ending) in [
            (StopReason::Interrupted, OutcomeKind::Interrupted),
            (StopReason::Forced, OutcomeKind::Interrupted),
            (StopReason::DeadlineNear, OutcomeKind::Interrupted),
            (StopReason::Stale, OutcomeKind::Interrupted),
            (StopReason::Cancelled, OutcomeKind::Cancelled),
        ] {
            assert_eq!(end("gave up", Some(reason)).kind, ending, "{reason:?}");
        }
        let for_good = end(HandlerError::permanent("x", "y"), Some(StopReason::Interrupted));
        assert_eq!(for_good.kind, OutcomeKind::Failed);
    }
}
