//! A job that a program stored by SQL: the one that its envelope would become at the OJS API.

use outlast_core::budget::ScheduledTimeout;
use outlast_core::job::Rules;
use outlast_core::keys::Keys;
use outlast_core::time::Timestamp;
use outlast_store::arrival::{Arrival, ArrivedJob};
use outlast_store::command::{ClassKey, First, NewJob, Origin, Payload, Route};
use outlast_wire::ojs::enqueue;
use outlast_wire::{Fault, json};
use serde_json::Value;

use super::{IntakeError, Requester, is_tenant, ojs};
use crate::settings::Settings;

/// Who enqueued a job that was stored by SQL. Only the database knows which role it was.
const BY_SQL: &str = "sql";

/// Plans the job that an arrival becomes at `now`. A job that the OJS API would refuse is stored
/// as refused, so that its program finds out.
pub(crate) fn plan(settings: &Settings, arrival: &Arrival, now: Timestamp) -> ArrivedJob {
    let requester = Requester { tenant: arrival.tenant.as_deref(), name: Some(BY_SQL) };
    let envelope = match enqueue::one(arrival.envelope.as_bytes()) {
        Ok(envelope) => envelope,
        Err(fault) => return refused(arrival, unreadable(arrival), &fault.into()),
    };
    if envelope.unique.is_some() {
        let job = ojs::plain(envelope, requester, now);
        return refused(arrival, job, &Fault::unsupported("unique").into());
    }
    match ojs::plan(settings, envelope.clone(), requester, now) {
        Ok(job) => arrived(arrival, job, None),
        // The job as it was sent, without the action that does not take it.
        Err(error) => {
            let mut job = ojs::plain(envelope, requester, now);
            job.class.tenant = job.class.tenant.filter(|name| is_tenant(name));
            refused(arrival, job, &error)
        }
    }
}

fn refused(arrival: &Arrival, job: NewJob, error: &IntakeError) -> ArrivedJob {
    let reason = serde_json::json!({ "type": error.code().as_str(), "message": error.to_string() });
    arrived(arrival, job, Some(reason.to_string()))
}

fn arrived(arrival: &Arrival, job: NewJob, refused: Option<String>) -> ArrivedJob {
    ArrivedJob { number: arrival.number, job: NewJob { id: arrival.id, ..job }, refused }
}

/// What can be kept of an arrival that the SQL function accepted and the OJS API does not.
fn unreadable(arrival: &Arrival) -> NewJob {
    let sent = |field| json::field(&arrival.envelope, field);
    let job_type = sent("type").and_then(|text| serde_json::from_str(text.get()).ok());
    // What not every client can read is not kept.
    let args = sent("args").and_then(|args| serde_json::from_str(args.get()).ok());
    let args = args.filter(Value::is_array).map(|args| args.to_string());
    NewJob {
        id: arrival.id,
        class: ClassKey {
            queue: "default".to_owned(),
            job_type: job_type.unwrap_or_else(|| "unreadable".to_owned()),
            route: Route::Plain,
            tenant: arrival.tenant.clone(),
            isolated: false,
            keyed: false,
            placement: Default::default(),
        },
        keys: Keys::default(),
        priority: 0,
        payload: Payload { args: args.unwrap_or_else(|| "[]".to_owned()), ..Payload::default() },
        rules: Rules::standard(),
        first: First::Now,
        timeout: None,
        visibility: None,
        scheduled_timeout: ScheduledTimeout::Never,
        origin: Origin::Ojs,
        by: BY_SQL.to_owned(),
        unique: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outlast_core::id::JobId;
    use outlast_packs::PackSet;
    use outlast_store::arrival::ArrivalNumber;

    use super::*;

    fn planned_of(envelope: &str) -> ArrivedJob {
        let packs = Arc::new(PackSet::embedded_core().unwrap());
        let arrival = Arrival {
            number: ArrivalNumber(3),
            id: JobId(uuid::Uuid::from_u128(7)),
            envelope: envelope.to_owned(),
            tenant: Some("acme".to_owned()),
        };
        plan(&Settings::with_packs(packs), &arrival, Timestamp(1_000))
    }

    #[test]
    fn arrival_becomes_the_job_that_its_envelope_asks_for_with_the_id_of_its_row() {
        let planned = planned_of(
            r#"{"type":"email.send","args":[1],"id":"0190f3a4-0000-7000-8000-000000000001",
                "options":{"queue":"mail","priority":5,"scheduled_at":"+PT2S"}}"#,
        );
        assert_eq!(planned.number, ArrivalNumber(3));
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
        let long = planned_of(r#"{"type":"core.echo","args":[{"n":123456789012345678901}]}"#);
        assert!(long.refused.unwrap().contains("send it as a string"));
        assert_eq!(bad.job.payload.args, r#"[{"duration":"long"}]"#);
    }

    #[test]
    fn arrival_that_cannot_be_read_is_refused_with_the_reason_and_keeps_what_it_can() {
        let planned = planned_of(r#"{"type":"email.send","args":[1],"options":{"priority":900}}"#);
        assert!(planned.refused.unwrap().contains("priority"));
        assert_eq!(planned.job.class.job_type, "email.send");
        assert!(planned_of("no json").refused.is_some());
        let large = planned_of(r#"{"type":"email.send","args":[1e400]}"#);
        assert!(large.refused.unwrap().contains("line 1, column 30: number is too large"));
        assert_eq!(
            (large.job.class.job_type.as_str(), large.job.payload.args.as_str()),
            ("email.send", "[]")
        );
    }
}
