//! What a schedule is, and how the store keeps it.

use outlast_core::time::{Span, Timestamp};
use outlast_packs::PackSet;
use outlast_schedule::progress::Timing;
use outlast_schedule::{CatchUp, Expression, Overlap, Zone};
use outlast_wire::Fault;
use outlast_wire::schedule::{ScheduleRequest, Template};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What a schedule is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition {
    /// When it fires.
    pub(crate) timing: Timing,
    /// What each fire stores.
    pub(crate) template: Template,
    /// The tenant whose job that is.
    pub(crate) tenant: Option<String>,
}

/// The same as it is stored.
#[derive(Serialize, Deserialize)]
struct Stored {
    cron: String,
    time_zone: String,
    overlap: String,
    catch_up: String,
    #[serde(default)]
    jitter_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    execution: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ojs: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow: Option<Box<RawValue>>,
}

/// Checks when a schedule is to fire.
///
/// # Errors
/// Returns what is wrong with it, and what would be right.
pub fn check(request: &ScheduleRequest) -> Result<(), Fault> {
    timing(request, Timestamp::default()).map(|_| ())
}

fn timing(request: &ScheduleRequest, now: Timestamp) -> Result<Timing, Fault> {
    let names = request.names;
    let of_zone = request.time_zone.as_deref().map(Zone::named).transpose();
    let zone = of_zone
        .map_err(|error| Fault::rule(names.time_zone, format!("is no time zone here: {error}")))?;
    let expression = Expression::parse(&request.cron)
        .map_err(|error| Fault::rule(names.cron, format!("cannot be read: {error}")))?;
    let of_overlap = request.overlap.as_deref().map(Overlap::parse).transpose();
    let overlap =
        of_overlap.map_err(|error| Fault::field(names.overlap, format!("is wrong: {error}")))?;
    let of_catch_up = request.catch_up.as_deref().map(CatchUp::parse).transpose();
    let catch_up =
        of_catch_up.map_err(|error| Fault::field("catch_up", format!("is wrong: {error}")))?;
    Ok(Timing {
        expression,
        zone: zone.unwrap_or_else(Zone::utc),
        catch_up: catch_up.unwrap_or_default(),
        overlap: overlap.unwrap_or_default(),
        jitter: request.jitter,
        until: request.until.map(|until| until.resolve(now)),
    })
}

impl Definition {
    /// Reads what is asked for.
    pub(crate) fn of(
        request: &ScheduleRequest,
        tenant: Option<String>,
        now: Timestamp,
    ) -> Result<Self, Fault> {
        Ok(Self { timing: timing(request, now)?, template: request.template.clone(), tenant })
    }

    /// Reads what is stored.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let stored: Stored = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let template = match (stored.execution, stored.ojs, stored.workflow) {
            (Some(job), _, _) => Template::Execution(job.get().to_owned()),
            (None, Some(job), _) => Template::Ojs(job.get().to_owned()),
            (None, None, Some(workflow)) => Template::Workflow(workflow.get().to_owned()),
            (None, None, None) => return Err("it has no job".to_owned()),
        };
        let timing = Timing {
            expression: Expression::parse(&stored.cron).map_err(|error| error.to_string())?,
            zone: Zone::named(&stored.time_zone).map_err(|error| error.to_string())?,
            catch_up: CatchUp::parse(&stored.catch_up).map_err(|error| error.to_string())?,
            overlap: Overlap::parse(&stored.overlap).map_err(|error| error.to_string())?,
            jitter: Span(stored.jitter_ms),
            until: stored.until_ms.map(Timestamp),
        };
        Ok(Self { timing, template, tenant: stored.tenant })
    }

    /// Returns the request that each fire stores, as it may be shown: secret parameters are masked.
    pub(crate) fn shown_job(&self, packs: &PackSet) -> Value {
        let mut job: Value = serde_json::from_str(self.template.text()).unwrap_or_default();
        let reference = |name: &str| job.get(name).and_then(Value::as_str);
        match &self.template {
            Template::Execution(_) => {
                let action = reference("action_ref").and_then(|reference| packs.get(reference));
                if let Some(parameters) = job.get("parameters") {
                    job["parameters"] = match action {
                        Some(action) => action.mask(parameters),
                        // The action is gone, and with it the word on what is secret.
                        None => json!("not shown: the action is not known any more"),
                    };
                }
            }
            Template::Workflow(_) => {
                let found = reference("workflow_ref").and_then(|name| packs.workflow(name));
                if let Some(Value::Object(parameters)) = job.get("parameters") {
                    job["parameters"] = match found {
                        Some(workflow) => Value::Object(workflow.parameters.mask(parameters)),
                        None => json!("not shown: the workflow is not known any more"),
                    };
                }
            }
            Template::Ojs(_) => {
                let action = reference("type").and_then(|reference| packs.get(reference));
                if let (Some(action), Some(first)) = (action, job.pointer("/args/0")) {
                    job["args"][0] = action.mask(first);
                }
            }
        }
        job
    }

    /// Returns it as it is stored.
    pub(crate) fn text(&self) -> String {
        let Timing { expression, zone, catch_up, overlap, jitter, until } = &self.timing;
        let raw = |text: &String| RawValue::from_string(text.clone()).ok();
        let (execution, ojs, workflow) = match &self.template {
            Template::Execution(job) => (raw(job), None, None),
            Template::Ojs(job) => (None, raw(job), None),
            Template::Workflow(workflow) => (None, None, raw(workflow)),
        };
        let stored = Stored {
            cron: expression.to_string(),
            time_zone: zone.name().to_owned(),
            overlap: overlap.to_string(),
            catch_up: catch_up.to_string(),
            jitter_ms: jitter.0,
            until_ms: until.map(|until| until.0),
            tenant: self.tenant.clone(),
            execution,
            ojs,
            workflow,
        };
        // It holds texts and numbers only.
        serde_json::to_string(&stored).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_back() {
        for body in [
            r#"{"cron":"@every 90s","type":"email.send","args":[1.50,"ü"],"queue":"mail"}"#,
            r#"{"cron":"0 30 2 * * MON#2","time_zone":"Europe/Vienna","overlap":"replace",
                "catch_up":"none","jitter":"5m","until":"2030-01-01T00:00:00Z",
                "action_ref":"core.echo","parameters":{"message":"hi"}}"#,
        ] {
            let request = outlast_wire::schedule::read(body.as_bytes()).expect("it is right");
            let tenant = Some("acme".to_owned());
            let definition = Definition::of(&request, tenant, Timestamp(0)).expect("it is right");
            assert_eq!(Definition::parse(&definition.text()), Ok(definition));
        }
    }
}
