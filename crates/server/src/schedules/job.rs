//! The job of a fire.

use std::borrow::Cow;

use outlast_core::id::JobId;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::{Span, Timestamp};
use outlast_core::workflow::WorkflowId;
use outlast_store::command::{First, NewJob, Payload};
use outlast_store::schedule::FIELD as SCHEDULE;
use outlast_store::workflow::StartedWorkflow;
use outlast_wire::execution::request::Request;
use outlast_wire::json;
use outlast_wire::ojs::enqueue;
use outlast_wire::schedule::Template;
use outlast_wire::time::Rfc3339;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::definition::Definition;
use super::service::ScheduleError;
use crate::id;
use crate::intake::{IntakeError, Requester, execution, ojs};
use crate::settings::Settings;
use crate::workflows::{Scheduled, StoredFire};

/// A fire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fire<'a> {
    pub(super) name: &'a ScheduleName,
    /// When the schedule was made.
    pub(super) created: Timestamp,
    /// The time that the timetable has.
    pub(super) time: Timestamp,
    /// How late it is.
    pub(super) late: Span,
    /// Now.
    pub(super) now: Timestamp,
    /// Whether its job waits for others of the schedule.
    pub(super) waits: bool,
}

/// Returns the id of the job of a fire, the same whichever server makes it: a fire that is stored twice
/// is refused as the same job.
fn id_of(fire: Fire<'_>) -> JobId {
    let digest = Sha256::new()
        .chain_update(b"schedule\0")
        .chain_update(fire.name.as_str())
        .chain_update(b"\0")
        .chain_update(fire.created.0.to_be_bytes())
        .chain_update(fire.time.0.to_be_bytes())
        .finalize();
    JobId(id::of_digest(fire.time, &digest))
}

/// What a fire stores.
#[derive(Debug)]
pub(super) enum Made {
    Job(Box<NewJob>),
    Workflow(Box<StartedWorkflow>),
}

impl Made {
    pub(super) fn id(&self) -> Uuid {
        match self {
            Self::Job(job) => job.id.0,
            Self::Workflow(workflow) => workflow.id.0,
        }
    }

    /// Returns how long the text of a workflow is.
    pub(super) const fn workflow_bytes(&self) -> usize {
        match self {
            Self::Job(_) => 0,
            Self::Workflow(workflow) => workflow.new.definition.len(),
        }
    }
}

/// Plans what a fire stores.
pub(super) fn plan(
    settings: &Settings,
    definition: &Definition,
    fire: Fire<'_>,
) -> Result<Made, ScheduleError> {
    let by = format!("schedule {}", fire.name);
    let mut job = match &definition.template {
        Template::Workflow(text) => {
            let request = outlast_wire::workflow::read(text.as_bytes());
            let scheduled = Scheduled {
                id: WorkflowId(id_of(fire).0),
                request: request.map_err(IntakeError::from)?,
                tenant: definition.tenant.clone(),
                by,
                fire: StoredFire { name: fire.name.as_str().to_owned(), fire_time: fire.time.0 },
                begins: (!fire.waits).then_some(fire.now),
            };
            return Ok(Made::Workflow(Box::new(scheduled.plan(settings)?)));
        }
        Template::Execution(text) => {
            let request = Request::read(text.as_bytes()).map_err(IntakeError::from)?;
            execution::plan(settings, request, Some(&by), fire.now)?
        }
        Template::Ojs(text) => {
            let requester = Requester { tenant: definition.tenant.as_deref(), name: Some(&by) };
            ojs::plan(
                settings,
                enqueue::one(text.as_bytes()).map_err(IntakeError::from)?,
                requester,
                fire.now,
            )?
        }
    };
    job.id = id_of(fire);
    job.unique = None;
    if fire.waits {
        job.first = First::OnActivation;
    }
    marked(&mut job.payload, fire);
    Ok(Made::Job(Box::new(job)))
}

/// Checks that the job of a schedule can be made.
pub(crate) fn job_of_now(
    settings: &Settings,
    name: &ScheduleName,
    definition: &Definition,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    let fire = Fire { name, created: now, time: now, late: Span::ZERO, now, waits: false };
    plan(settings, definition, fire).map(|_| ())
}

/// Writes into a job which fire it is of: for the standard into `meta` (cron, section 6.3), and for
/// our own views into what is given back beside it.
fn marked(payload: &mut Payload, fire: Fire<'_>) {
    let (name, time) = (fire.name.as_str(), Rfc3339(fire.time).to_string());
    payload.meta = json::with(&payload.meta, &["cron_name", "cron_triggered_at"], |object| {
        object.text("cron_name", name);
        object.text("cron_triggered_at", &time);
    });
    payload.extra = json::with(&payload.extra, &[SCHEDULE], |object| {
        object.object(SCHEDULE, |object| {
            object.text("name", name);
            object.text("fire_time", &time);
            object.seconds("late_seconds", fire.late);
        });
    });
}

/// The fire that a job is of, as it is stored with the job.
#[derive(Debug, Deserialize)]
pub(crate) struct FireOfJob<'a> {
    /// The schedule.
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    /// The time that the timetable has.
    #[serde(borrow)]
    pub(crate) fire_time: Cow<'a, str>,
    /// How late the job was stored.
    pub(crate) late_seconds: f64,
}

/// Returns which fire a job is of, if it is of one.
pub(crate) fn fire_of(extra: &str) -> Option<FireOfJob<'_>> {
    let raw = json::field(extra, SCHEDULE)?;
    serde_json::from_str(raw.get()).ok()
}

#[cfg(test)]
mod tests {
    use outlast_store::schedule::mark;

    use super::*;

    fn fire(name: &ScheduleName, time: i64) -> Fire<'_> {
        let time = Timestamp(time);
        let (created, now, late) = (Timestamp(7), Timestamp(time.0 + 2_000), Span(1_250));
        Fire { name, created, time, late, now, waits: false }
    }

    #[test]
    fn a_fire_has_one_id_and_another_fire_another() {
        let [a, b] = ["a", "b"].map(|name| ScheduleName::new(name).expect("a name"));
        let id = id_of(fire(&a, 1_700_000_000_000));
        assert_eq!(
            id,
            id_of(Fire { now: Timestamp(0), waits: true, ..fire(&a, 1_700_000_000_000) })
        );
        assert_ne!(id, id_of(fire(&a, 1_700_000_001_000)));
        assert_ne!(id, id_of(fire(&b, 1_700_000_000_000)));
        assert_ne!(id, id_of(Fire { created: Timestamp(8), ..fire(&a, 1_700_000_000_000) }));
        assert_eq!(id.0.get_version_num(), 7);
    }

    #[test]
    fn a_job_says_which_fire_it_is_of_and_keeps_what_it_had() {
        let name = ScheduleName::new("night").expect("a name");
        let mut payload = Payload {
            args: "[]".into(),
            meta: r#"{"tenant_id":"acme","cron_name":"mine"}"#.into(),
            extra: r#"{"n":1.50,"schedule":"mine"}"#.into(),
        };
        marked(&mut payload, fire(&name, 1_700_000_000_000));
        assert_eq!(
            payload.meta,
            r#"{"tenant_id":"acme","cron_name":"night","cron_triggered_at":"2023-11-14T22:13:20Z"}"#
        );
        let schedule =
            r#"{"name":"night","fire_time":"2023-11-14T22:13:20Z","late_seconds":1.250}"#;
        assert_eq!(payload.extra, format!(r#"{{"n":1.50,"schedule":{schedule}}}"#));
        assert!(payload.extra.contains(&mark(&name)));
        assert_eq!(json::without(&payload.extra, &[SCHEDULE]), r#"{"n":1.50}"#);
        assert_eq!(json::without("", &[SCHEDULE]), "");
    }
}
