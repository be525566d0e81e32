//! Turns what the engine has for a session into messages.

use outlast_core::job::Overlap;
use outlast_core::labels::pinned_pack;
use outlast_core::limits::SESSION_MESSAGE_BYTES_AIM;
use outlast_core::resources::Resources;
use outlast_proto::v1::order::What;
use outlast_proto::v1::server_message::Body;
use outlast_proto::v1::{
    Deliveries, Delivery, Order, Orders, OutputStored, RefusalCode, ReportAnswer, ReportAnswers,
    RevokeAttempt, ServerMessage, SetPhase, StopAttempt, Verdict,
};
use outlast_store::command::{ClassKey, Route};
use outlast_store::reply::Claimed;
use prost::Message as _;

use crate::engine::output::{self, CloseReason, Output, SessionOrder, SessionOutput};
use crate::session::convert::{self, refused};

/// Returns the messages that carry an output.
pub(super) fn messages(SessionOutput { session, output }: SessionOutput) -> Vec<ServerMessage> {
    let bodies = match output {
        Output::Answers(answers) => {
            let answers = answers.into_iter().map(answer).collect();
            vec![Body::Answers(ReportAnswers { answers })]
        }
        Output::Deliveries(claimed) => split(claimed.iter().map(delivery))
            .into_iter()
            .map(|deliveries| Body::Deliveries(Deliveries { deliveries }))
            .collect(),
        Output::Orders(orders) => {
            let orders = orders.into_iter().map(order).collect();
            vec![Body::Orders(Orders { orders })]
        }
        Output::Stored(messages) => vec![Body::OutputStored(OutputStored { messages })],
        Output::Closed { reason, message } => {
            let code = match reason {
                CloseReason::Unavailable => RefusalCode::Unavailable,
                CloseReason::Superseded => RefusalCode::Superseded,
                CloseReason::Lapsed => RefusalCode::Lapsed,
            };
            vec![Body::Refused(refused(code, message))]
        }
    };
    let message = |body| ServerMessage { session, body: Some(body) };
    bodies.into_iter().map(message).collect()
}

fn answer(answer: output::ReportAnswer) -> ReportAnswer {
    let output::ReportAnswer { job, epoch, finished, verdict } = answer;
    let (verdict, reason) = match verdict {
        Ok(()) => (Verdict::Accepted, String::new()),
        Err(refusal) => (convert::verdict(&refusal), refusal.to_string()),
    };
    let attempt = Some(convert::key(job, epoch));
    ReportAnswer { attempt, finished, verdict: verdict.into(), reason }
}

fn order(order: SessionOrder) -> Order {
    let what = match order {
        SessionOrder::Phase { order, by } => {
            What::Phase(SetPhase { phase: convert::phase_of(order).into(), by, standing: true })
        }
        SessionOrder::Stop { job, epoch } => {
            let attempt = Some(convert::key(job, epoch));
            What::Stop(StopAttempt { attempt, why: "cancelled".into() })
        }
        SessionOrder::Revoke { job, epoch } => {
            What::Revoke(RevokeAttempt { attempt: Some(convert::key(job, epoch)) })
        }
    };
    Order { what: Some(what) }
}

fn delivery(claimed: &Claimed) -> Delivery {
    let job = &claimed.job;
    Delivery {
        attempt: Some(convert::key(job.id, claimed.epoch)),
        job_type: job.key.job_type.clone(),
        queue: job.key.queue.clone(),
        attempt_number: claimed.attempt,
        args_json: job.payload.args.clone().into_bytes().into(),
        meta_json: job.payload.meta.clone().into_bytes().into(),
        timeout_ms: job.timeout.map(|limit| limit.0),
        overlap_forbidden: job.rules.overlap == Overlap::Forbidden,
        isolated: claimed.isolated,
        checkpoint: claimed.checkpoint.clone().unwrap_or_default().into(),
        idempotency_key: job.id.to_string(),
        max_attempts: job.rules.retry.max_attempts,
        resources: resources(&job.rules.resources),
        pack_digest: pack_digest(&job.key).to_owned(),
    }
}

/// Which files of its pack a pinned job must run with. The worker may have read others since it was
/// chosen.
fn pack_digest(class: &ClassKey) -> &str {
    match class.route {
        Route::Action { .. } => pinned_pack(&class.placement.requires, &class.job_type),
        Route::Plain => None,
    }
    .unwrap_or_default()
}

/// The limits, unless there are none.
fn resources(limits: &Resources) -> Option<outlast_proto::v1::Resources> {
    (!limits.is_empty()).then(|| outlast_proto::v1::Resources {
        memory_bytes: limits.memory(),
        cpu_millis: limits.cpu_millis(),
        processes: limits.processes(),
    })
}

/// Splits deliveries by their size on the wire. A message over the limit would end the stream,
/// the same claims would follow on the next one, and nothing would ever run.
fn split(deliveries: impl Iterator<Item = Delivery>) -> Vec<Vec<Delivery>> {
    let (mut messages, mut message, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    for delivery in deliveries {
        let size = delivery.encoded_len();
        if bytes > 0 && bytes.saturating_add(size) > SESSION_MESSAGE_BYTES_AIM {
            messages.push(std::mem::take(&mut message));
            bytes = 0;
        }
        bytes = bytes.saturating_add(size);
        message.push(delivery);
    }
    if !message.is_empty() {
        messages.push(message);
    }
    messages
}

#[cfg(test)]
mod tests {
    use outlast_core::limits::{BODY_BYTES_MAX, SESSION_MESSAGE_BYTES_MAX};
    use outlast_core::selector::Placement;

    use super::*;

    #[test]
    fn delivery_of_a_pinned_job_says_with_which_files_it_must_run() {
        let action = || Route::Action { runtime: "shell".into(), labels: [].into(), proof: false };
        let class = |route, requires: &str| ClassKey {
            queue: "default".into(),
            job_type: "ops.which".into(),
            route,
            tenant: None,
            isolated: false,
            keyed: false,
            placement: Placement { requires: requires.parse().unwrap(), ..Placement::default() },
        };
        assert_eq!(pack_digest(&class(action(), "gpu, pack/ops=12a6")), "12a6");
        assert_eq!(pack_digest(&class(action(), "gpu")), "");
        assert_eq!(pack_digest(&class(Route::Plain, "pack/ops=12a6")), "");
    }

    #[test]
    fn deliveries_are_split_by_size_and_none_is_left_out() {
        let large =
            Delivery { args_json: vec![b'1'; BODY_BYTES_MAX].into(), ..Delivery::default() };
        let small = Delivery { queue: "q".into(), ..Delivery::default() };
        let all: Vec<_> = (0..90).flat_map(|_| [large.clone(), small.clone()]).collect();
        let messages = split(all.clone().into_iter());
        for message in &messages {
            let bytes: usize = message.iter().map(Delivery::encoded_len).sum();
            assert!(bytes <= SESSION_MESSAGE_BYTES_MAX / 8, "{bytes}");
        }
        assert_eq!(messages.concat(), all);
        assert_eq!(split(vec![small; 1000].into_iter()).len(), 1);
        assert!(split(std::iter::empty()).is_empty());
    }
}
