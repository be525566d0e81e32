use std::collections::BTreeMap;

use outlast_core::gate::Rate;
use outlast_core::id::{JobId, WorkerId};
use outlast_core::keys::Keys;
use outlast_core::limit::{LimitName, Scope};
use outlast_core::time::Span;
use uuid::Uuid;

use super::*;

const NOW: Timestamp = Timestamp(1_000_000);

fn limit(name: &str, scope: Scope, concurrency: Option<u32>, rate: Option<Rate>) -> Limit {
    Limit { name: LimitName::new(name).unwrap(), scope, concurrency, rate }
}

fn tenant(value: &str) -> Keys {
    Keys::new(BTreeMap::from([("tenant".into(), value.into())])).unwrap()
}

const fn job(keys: &Keys) -> Subject<'_> {
    Subject { queue: "mail", job_type: "send", keys }
}

fn holder(worker: u128, plain: Option<&str>) -> GateHolder {
    GateHolder {
        job: JobId(Uuid::nil()),
        worker: plain.is_none().then(|| WorkerId(Uuid::from_u128(worker))),
        plain: plain.map(Into::into),
        claimed: NOW,
    }
}

/// The gates of the limits for a job with these keys, with this state.
fn in_force(limits: Vec<Limit>, keys: &Keys, states: &[(u64, i64, &[GateHolder])]) -> GatesInForce {
    let mut all = GatesInForce { limits, now: NOW, ..GatesInForce::default() };
    for (limit, (in_flight, used_until, holders)) in all.limits.iter().zip(states) {
        let gate = limit.gate_of(job(keys)).unwrap();
        let value = gate.value.map(Into::into);
        let (id, in_flight, used_until) = (gate.id(), *in_flight, *used_until);
        all.gates.insert(id, GateRecord { id, value, in_flight, used_until });
        all.workers.insert(id, workers(holders));
    }
    all
}

#[test]
fn full_limit_is_named_with_its_value_and_who_holds_it() {
    let keys = tenant("42");
    let limits = || vec![limit("tenant", Scope::Key("tenant".into()), Some(5), None)];
    let one = holder(1, None);
    let held = [one.clone(), one, holder(2, None), holder(2, None), holder(0, Some("w"))];
    let all = in_force(limits(), &keys, &[(5, 0, &held)]);
    let reason = all.reason(job(&keys));
    assert_eq!(reason.as_deref(), Some("limit tenant:42 is 5/5 (held by 3 workers)"));
    // Another value has a gate of its own.
    assert_eq!(all.reason(job(&tenant("43"))), None);
    assert_eq!(all.reason(job(&Keys::default())), None);
    let open = in_force(limits(), &keys, &[(4, 0, &held[..4])]);
    assert_eq!(open.reason(job(&keys)), None);
}

#[test]
fn limit_that_was_lowered_and_one_of_zero_say_what_they_count() {
    let keys = Keys::default();
    let queue = |most| vec![limit("mail", Scope::Queue("mail".into()), Some(most), None)];
    let lowered = in_force(queue(2), &keys, &[(3, 0, &[holder(1, None)])]);
    let reason = lowered.reason(job(&keys));
    assert_eq!(reason.as_deref(), Some("limit mail is 3/2 (held by 1 worker)"));
    let stop = in_force(queue(0), &keys, &[]);
    assert_eq!(stop.reason(job(&keys)).as_deref(), Some("limit mail is 0/0"));
}

#[test]
fn rate_says_when_it_opens() {
    let keys = Keys::default();
    let rate = Rate::new(1, Span::from_secs(60)).unwrap();
    let limits = || vec![limit("stripe", Scope::Type("send".into()), None, Some(rate))];
    // One start, 57.2 seconds ago, used the rate up for a minute.
    let used_until = (NOW.0 + 2_800) * 1000;
    let shut = in_force(limits(), &keys, &[(1, used_until, &[])]);
    assert_eq!(shut.reason(job(&keys)).as_deref(), Some("rate stripe opens in 3 s"));
    let open = in_force(limits(), &keys, &[(1, NOW.0 * 1000, &[])]);
    assert_eq!(open.reason(job(&keys)), None);
}

#[test]
fn every_limit_that_is_shut_is_named() {
    let keys = tenant("42");
    let rate = Rate::new(1, Span::from_secs(60)).unwrap();
    let limits = vec![
        limit("stripe", Scope::Type("send".into()), None, Some(rate)),
        limit("tenant", Scope::Key("tenant".into()), Some(1), None),
    ];
    let shut = in_force(limits, &keys, &[(0, (NOW.0 + 60_000) * 1000, &[]), (1, 0, &[])]);
    let reason = shut.reason(job(&keys));
    assert_eq!(reason.as_deref(), Some("rate stripe opens in 60 s, limit tenant:42 is 1/1"));
}
