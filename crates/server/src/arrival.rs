//! What job an arrival is: the same that its envelope would have become at the HTTP door.

use outlast_core::budget::ScheduledTimeout;
use outlast_core::id::JobId;
use outlast_core::job::Rules;
use outlast_core::time::Timestamp;
use outlast_store::arrival::{Arrival, Planned, Planner};
use outlast_store::command::{ClassKey, First, NewJob, Origin, Payload, Route};
use outlast_wire::ojs::enqueue;
use serde_json::{Value, json};

use crate::http::error::Failure;
use crate::http::plan::{self, Asker};
use crate::settings::Settings;

/// Returns the planner of a server with these settings.
pub(crate) fn planner(settings: &Settings) -> Planner {
    let settings = settings.clone();
    Planner::new(move |arrival, now| planned(&settings, arrival, now))
}

/// Who enqueued what a program stored by SQL; which role it was, the database knows.
const BY_SQL: &str = "sql";

fn planned(settings: &Settings, arrival: &Arrival, now: Timestamp) -> Planned {
    let asker = Asker { tenant: arrival.tenant.as_deref(), name: Some(BY_SQL) };
    let refusal = match enqueue::one(arrival.envelope.as_bytes()) {
        Ok(envelope) => match plan::ojs_at(settings, envelope.clone(), asker, now) {
            Ok((job, _)) => return stored(arrival.id, job, None),
            // The job as it was sent, without the action that does not take it.
            Err(failure) => {
                let (mut job, _) = plan::plain(envelope, asker, now);
                job.class.tenant = job.class.tenant.filter(|name| plan::is_tenant(name));
                return stored(arrival.id, job, Some(words(&failure)));
            }
        },
        Err(fault) => words(&fault.into()),
    };
    stored(arrival.id, unreadable(arrival), Some(refusal))
}

fn stored(id: JobId, job: NewJob, refused: Option<String>) -> Planned {
    Planned { job: NewJob { id, ..job }, refused }
}

fn words(failure: &Failure) -> String {
    json!({ "type": failure.code().as_str(), "message": failure.message() }).to_string()
}

/// What can be kept of an arrival that the SQL function let through and no door does.
fn unreadable(arrival: &Arrival) -> NewJob {
    let sent: Value = serde_json::from_str(&arrival.envelope).unwrap_or_default();
    let job_type = sent.get("type").and_then(Value::as_str).unwrap_or("unreadable");
    let args = sent.get("args").filter(|args| args.is_array()).map(Value::to_string);
    NewJob {
        id: arrival.id,
        class: ClassKey {
            queue: "default".to_owned(),
            job_type: job_type.to_owned(),
            route: Route::Plain,
            tenant: arrival.tenant.clone(),
            isolated: false,
        },
        priority: 0,
        payload: Payload { args: args.unwrap_or_else(|| "[]".to_owned()), ..Payload::default() },
        rules: Rules::standard(),
        first: First::Now,
        timeout: None,
        visibility: None,
        scheduled_timeout: ScheduledTimeout::Never,
        origin: Origin::Ojs,
        by: BY_SQL.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outlast_packs::PackSet;

    use super::*;

    fn planned_of(envelope: &str) -> Planned {
        let packs = Arc::new(PackSet::embedded_core().unwrap());
        let arrival = Arrival {
            id: JobId(uuid::Uuid::from_u128(7)),
            envelope: envelope.to_owned(),
            tenant: Some("acme".to_owned()),
        };
        planner(&Settings::with_packs(packs)).plan(&arrival, Timestamp(1_000))
    }

    #[test]
    fn arrival_becomes_the_job_that_its_envelope_asks_for_with_the_id_of_its_row() {
        let planned = planned_of(
            r#"{"type":"email.send","args":[1],"id":"0190f3a4-0000-7000-8000-000000000001",
                "options":{"queue":"mail","priority":5,"scheduled_at":"+PT2S"}}"#,
        );
        let NewJob { id, class, priority, first, .. } = planned.job;
        assert_eq!((id.0.as_u128(), class.queue.as_str(), priority), (7, "mail", 5));
        assert_eq!(class.tenant.as_deref(), Some("acme"));
        assert_eq!((first, planned.refused), (First::At(Timestamp(3_000)), None));
    }

    #[test]
    fn arrival_that_names_an_action_is_routed_to_it_and_its_parameters_are_checked() {
        let good = planned_of(r#"{"type":"core.echo","args":[{"message":"hi"}]}"#);
        assert!(matches!(good.job.class.route, Route::Action { .. }));
        assert_eq!(good.refused, None);
        let bad = planned_of(r#"{"type":"core.sleep","args":[{"duration":"long"}]}"#);
        assert!(bad.refused.unwrap().contains("core.sleep"));
        assert_eq!(bad.job.payload.args, r#"[{"duration":"long"}]"#);
    }

    #[test]
    fn arrival_that_cannot_be_read_is_refused_with_the_reason_and_keeps_what_it_can() {
        let planned = planned_of(r#"{"type":"email.send","args":[1],"options":{"priority":900}}"#);
        assert!(planned.refused.unwrap().contains("priority"));
        assert_eq!(planned.job.class.job_type, "email.send");
        assert!(planned_of("no json").refused.is_some());
    }
}
