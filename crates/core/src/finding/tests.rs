use std::collections::BTreeSet;

use super::*;

const ALERTS: &str = include_str!("../../../../deploy/prometheus/outlast.rules.yaml");
const PAGE: &str = include_str!("../../../../docs/operate/findings.md");

fn recent(count: u64) -> Recent {
    Recent { count, last: Some("why".into()), is_whole: true, over: Span::from_secs(600) }
}

fn worker(trouble: Trouble) -> TroubledWorker {
    TroubledWorker { id: "1".into(), name: "w".into(), trouble }
}

fn queue(paused: bool, seconds: u64) -> WaitingQueue {
    let name = ("mail/eu".to_owned(), "mail%2Feu".to_owned());
    WaitingQueue { name, paused, available: 1_204, oldest: Span::from_secs(seconds) }
}

/// Everything is wrong at once.
fn bad() -> Facts {
    Facts {
        store: Some(("the store does not answer".into(), "no space".into())),
        waiting: 3,
        workers: WorkerCounts { quiet: 2, ..WorkerCounts::default() },
        nowhere: vec![Nowhere {
            jobs: 3,
            job_type: Some("t".into()),
            queue: "q".into(),
            reason: "no eligible worker: 2 quiet".into(),
            lacks_action: false,
        }],
        troubled: vec![
            worker(Trouble::Silent { last_heard: Span::from_secs(7), in_flight: 1 }),
            worker(Trouble::Unhealthy { reason: "disk".into(), since: Span::from_secs(9) }),
        ],
        queues: vec![queue(true, 1_000), queue(false, 1_000)],
        workflow_lag: Span::from_secs(31),
        lost: recent(1),
        letters: recent(2),
        skips: recent(3),
        late_fires: recent(1),
        recounts: recent(1),
        refused_beats: recent(1),
        failed: recent(30),
        completed: 70,
    }
}

#[test]
fn each_rule_has_a_finding_or_is_for_alerts_only() {
    let found: BTreeSet<&str> = findings(&bad()).iter().map(|it| it.rule.name()).collect();
    for rule in Rule::ALL {
        let is_found = found.contains(rule.name());
        assert_eq!(is_found, !rule.is_for_alerts_only(), "{}", rule.name());
        assert_eq!(Rule::parse(rule.name()), Some(rule));
    }
}

#[test]
fn each_rule_is_an_alert_and_each_alert_a_rule() {
    let mut alerts: Vec<&str> =
        ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let mut named: Vec<&str> = Rule::ALL.map(Rule::name).to_vec();
    alerts.sort_unstable();
    named.sort_unstable();
    assert_eq!(alerts, named);
}

#[test]
fn each_rule_is_explained_under_a_heading_of_its_own() {
    for rule in Rule::ALL {
        let name = rule.name();
        let heading = format!("\n### {name}\n");
        let below = PAGE.split_once(&heading).unwrap_or_else(|| panic!("no heading {name}")).1;
        let words = below.split("\n### ").next().unwrap_or_default().trim();
        assert!(words.len() > 40, "{name}: {words}");
        let anchor = format!("docs/operate/findings.md#{}", name.to_lowercase());
        assert!(ALERTS.contains(&anchor), "the alert {name} leads to {anchor}");
    }
}

#[test]
fn worst_ones_come_first_and_all_say_what_to_do() {
    let all = findings(&bad());
    assert!(all.is_sorted_by_key(|it| !it.rule.is_worst()), "{all:?}");
    for finding in &all {
        assert!(!finding.what.is_empty() && !finding.fix.is_empty(), "{finding:?}");
        assert!(!finding.page.starts_with('/'), "{finding:?}");
    }
    let words: Vec<&str> = all.iter().map(|it| it.what.as_str()).collect();
    for said in [
        "3 jobs wait, and no worker takes jobs",
        "3 jobs of t in queue q can run nowhere",
        "1 attempt was lost in the last 10 min",
        "queue mail/eu is paused, and 1,204 jobs wait in it",
        "30 attempts failed in the last 10 min",
    ] {
        assert!(words.contains(&said), "{said}: {words:?}");
    }
    let paused = all.iter().find(|it| it.rule == Rule::QueuePaused).expect("it is found");
    assert_eq!(paused.page, "queues/mail%2Feu");
}

#[test]
fn nothing_is_found_where_all_is_well() {
    assert_eq!(findings(&Facts::default()), []);
    let busy = Facts {
        waiting: 5,
        workers: WorkerCounts { running: 1, ..WorkerCounts::default() },
        queues: vec![queue(true, 899), queue(false, 900)],
        workflow_lag: Span::from_secs(30),
        failed: recent(25),
        completed: 100,
        ..Facts::default()
    };
    assert_eq!(findings(&busy), [], "one of five may fail");
    let few = Facts { failed: recent(9), ..Facts::default() };
    assert_eq!(findings(&few), [], "too few to say anything");
}

#[test]
fn what_is_not_known_whole_is_said_to_be_the_least() {
    let lost = Recent { is_whole: false, last: None, ..recent(7) };
    let found = findings(&Facts { lost, ..Facts::default() });
    assert_eq!(found[0].what, "at least 7 attempts were lost in the last 10 min");
    assert_eq!(found[0].evidence, "");
}

#[test]
fn worker_without_the_action_is_to_be_asked_what_it_lacks() {
    let fix = |lacks_action| {
        let nowhere = bad().nowhere.into_iter().map(|jobs| Nowhere { lacks_action, ..jobs });
        let facts = Facts { nowhere: nowhere.collect(), ..Facts::default() };
        findings(&facts).remove(0).fix
    };
    assert!(fix(true).contains("secrets") && fix(true).contains("`action not offered`"));
    assert!(!fix(false).contains("secrets"));
}
