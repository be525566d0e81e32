//! Intake: turns what was asked for into the job that is stored, whichever API it came by.
//!
//! A job whose type names an action is routed to that action's workers. Its parameters are
//! checked here, before anything is stored. Nothing here waits, reads a clock or knows HTTP.
//!
//! - [`ojs`]: a job in the format of the OJS API
//! - [`execution`]: a request for an execution, and another run of a stored job
//! - [`arrival`]: a job that a program stored by SQL
//! - [`action`]: what the action says about the job
//! - [`unique`]: what makes a job the only one of its sort
//! - [`error`]: why a request becomes no job

pub(crate) mod action;
pub(crate) mod arrival;
mod error;
pub(crate) mod execution;
pub(crate) mod ojs;
mod unique;

use outlast_core::labels::check_wanted;
use outlast_core::limits::{LABELS_BYTES_MAX, LABELS_MAX, ROUTE_BYTES_MAX, TENANT_NAME_MAX};
use outlast_store::command::{ClassKey, Route};
use outlast_wire::Fault;

pub(crate) use error::{IntakeError, suggestion};

/// Who enqueued a job when no token was needed.
pub(crate) const ANONYMOUS: &str = "anonymous";

/// Who asks for a job.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requester<'a> {
    /// The tenant that the request is limited to.
    pub(crate) tenant: Option<&'a str>,
    /// The name of the token that was shown.
    pub(crate) name: Option<&'a str>,
}

/// Returns whether a tenant may have this name.
fn is_tenant(name: &str) -> bool {
    name.len() <= TENANT_NAME_MAX && !name.chars().any(char::is_control)
}

/// Checks the sizes of those parts of a class that have no fixed set of names. The store uses
/// them as keys.
fn check_class(class: &ClassKey) -> Result<(), Fault> {
    if class.queue == crate::handlers::QUEUE {
        return Err(Fault::rule("queue", "is for what handles dead letters"));
    }
    if class.tenant.as_deref().is_some_and(|name| !is_tenant(name)) {
        let problem = format!("must be at most {TENANT_NAME_MAX} bytes, none of them control");
        return Err(Fault::rule("meta.tenant_id", problem));
    }
    check_placement(class)?;
    let Route::Action { labels, .. } = &class.route else { return Ok(()) };
    if labels.len() > LABELS_MAX {
        let problem = format!(
            "names {} labels, those of the action included; at most {LABELS_MAX} are taken",
            labels.len()
        );
        return Err(Fault::rule("labels", problem));
    }
    let bytes = serde_json::to_string(labels).map_or(usize::MAX, |text| text.len());
    if bytes > LABELS_BYTES_MAX {
        let problem = format!(
            "is {bytes} bytes long as JSON, the action's own labels included; at most \
             {LABELS_BYTES_MAX} are taken"
        );
        return Err(Fault::rule("labels", problem));
    }
    check_wanted(labels).map_err(|error| {
        Fault::rule("labels", format!("asks for what no worker can carry: {error}"))
    })
}

/// Checks how long the selectors of a class are, together with its labels.
fn check_placement(class: &ClassKey) -> Result<(), Fault> {
    let placement = &class.placement;
    if placement.is_empty() {
        return Ok(());
    }
    let labels = match &class.route {
        Route::Action { labels, .. } => {
            serde_json::to_string(labels).map_or(usize::MAX, |text| text.len())
        }
        Route::Plain => 0,
    };
    let selectors = [&placement.requires, &placement.prefers].map(|it| it.to_string().len());
    let bytes = selectors.iter().fold(labels, |sum, bytes| sum.saturating_add(*bytes));
    if bytes > ROUTE_BYTES_MAX {
        return Err(outlast_wire::placement::too_long(bytes));
    }
    Ok(())
}
