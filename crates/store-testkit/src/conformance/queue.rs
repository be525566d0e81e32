//! Settings of queues: what a change leaves as it is, and what is kept.

use outlast_core::queue::{Change, Fair, QueueChange, QueueRefusal, QueueSettings, Weight};
use outlast_core::selector::{Placement, Selector};
use outlast_core::time::Span;
use outlast_store::command::{Command, QueueOrder, SetQueue};
use outlast_store::event::EventQuery;
use outlast_store::queue::{QueueChanged, QueueRecord};
use outlast_store::reply::Reply;
use outlast_store::store::Store as _;

use crate::conformance::Harness;
use crate::conformance::world::World;

cases![
    settings_are_kept_with_who_made_them,
    change_leaves_what_it_does_not_name,
    each_setting_is_changed_without_the_others,
    refused_change_leaves_all_as_it_was,
    queue_with_settings_is_listed_and_can_be_paused,
    settings_survive_a_crash_and_not_a_reset,
];

/// Makes a queue share slots by a key.
pub(crate) fn fair_by(key: &str, weights: &[(&str, u32)]) -> QueueChange {
    let weight = |(value, weight): &(&str, u32)| Weight {
        key: key.into(),
        value: (*value).into(),
        weight: *weight,
    };
    let weights = weights.iter().map(weight).collect();
    QueueChange { fair_by: Change::Set(key.into()), weights, ..QueueChange::default() }
}

fn fair(key: &str, weights: &[(&str, u32)]) -> QueueSettings {
    let weights = weights.iter().map(|(value, weight)| ((*value).into(), *weight)).collect();
    let fair = Some(Fair { key: key.into(), weights });
    QueueSettings { fair, ..QueueSettings::default() }
}

impl<H: Harness> World<'_, H> {
    pub(crate) fn set_queue(
        &mut self,
        queue: &str,
        change: QueueChange,
    ) -> Result<QueueChanged, QueueRefusal> {
        let order = SetQueue { queue: queue.into(), change, by: "operator".into() };
        match self.one(Command::SetQueue(Box::new(order))) {
            Reply::QueueSet(changed) => changed,
            other => panic!("not a reply about settings: {other:?}"),
        }
    }

    fn settings(&self) -> Vec<QueueRecord> {
        self.ask(self.store().queue_settings())
    }
}

fn settings_are_kept_with_who_made_them<H: Harness>(world: &mut World<'_, H>) {
    assert_eq!(world.settings(), []);
    let set = world.set_queue("b", fair_by("tenant", &[("42", 3)]));
    assert_eq!(set, Ok(QueueChanged::Changed));
    let at = world.now();
    world.wait(Span::from_secs(5));
    // The same again is no change, and not who made it.
    let set = world.set_queue("b", fair_by("tenant", &[("42", 3)]));
    assert_eq!(set, Ok(QueueChanged::Unchanged));
    world.set_queue("a", fair_by("account", &[])).unwrap();
    let record = |queue: &str, settings, set_at| QueueRecord {
        queue: queue.into(),
        settings,
        set_by: "operator".into(),
        set_at,
    };
    let expected = [
        record("a", fair("account", &[]), world.now()),
        record("b", fair("tenant", &[("42", 3)]), at),
    ];
    assert_eq!(world.settings(), expected);
    let names = vec!["queue.set".to_owned()];
    let query = EventQuery { names, ..EventQuery::all(10) };
    let said = world.ask(world.store().events(query)).events.into_iter();
    let said: Vec<_> = said.map(|(_, it)| (it.queue.unwrap(), it.evidence.text)).collect();
    let expected = [("b", "fair_by tenant, weight tenant:42=3"), ("a", "fair_by account")];
    assert_eq!(said, expected.map(|(queue, words)| (queue.to_owned(), words.to_owned())));
}

fn change_leaves_what_it_does_not_name<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue("mail", fair_by("tenant", &[("42", 3), ("7", 2)])).unwrap();
    let weights = fair_by("tenant", &[("7", 1), ("8", 5)]).weights;
    world.set_queue("mail", QueueChange { weights, ..QueueChange::default() }).unwrap();
    assert_eq!(world.settings()[0].settings, fair("tenant", &[("42", 3), ("8", 5)]));
    let unset = QueueChange { fair_by: Change::Unset, ..QueueChange::default() };
    world.set_queue("mail", unset).unwrap();
    assert_eq!(world.settings()[0].settings, QueueSettings::default());
}

fn each_setting_is_changed_without_the_others<H: Harness>(world: &mut World<'_, H>) {
    let selector = |text: &str| text.parse::<Selector>().unwrap();
    let all = QueueChange {
        max_depth: Change::Set(7),
        requires: Change::Set(selector("gpu=true, zone in (a, b)")),
        prefers: Change::Set(selector("!spot")),
        ..fair_by("tenant", &[("42", 3)])
    };
    world.set_queue("mail", all).unwrap();
    let mut expected = QueueSettings {
        max_depth: Some(7),
        placement: Placement {
            requires: selector("zone in (b, a), gpu=true"),
            prefers: selector("!spot"),
        },
        ..fair("tenant", &[("42", 3)])
    };
    assert_eq!(world.settings()[0].settings, expected);
    let only = QueueChange::default;
    world.set_queue("mail", QueueChange { max_depth: Change::Set(8), ..only() }).unwrap();
    expected.max_depth = Some(8);
    assert_eq!(world.settings()[0].settings, expected);
    let gpu = Change::Set(selector("gpu"));
    world.set_queue("mail", QueueChange { requires: gpu, ..only() }).unwrap();
    expected.placement.requires = selector("gpu");
    assert_eq!(world.settings()[0].settings, expected);
    world.crash();
    assert_eq!(world.settings()[0].settings, expected);
    world.set_queue("mail", QueueChange { requires: Change::Unset, ..only() }).unwrap();
    expected.placement.requires = Selector::default();
    assert_eq!(world.settings()[0].settings, expected);
    world.set_queue("mail", QueueChange { prefers: Change::Unset, ..only() }).unwrap();
    expected.placement.prefers = Selector::default();
    assert_eq!(world.settings()[0].settings, expected);
    let names = vec!["queue.set".to_owned()];
    let query = EventQuery { names, ..EventQuery::all(1) };
    let said = world.ask(world.store().events(query)).events;
    let words = r#"max_depth 7, fair_by tenant, weight tenant:42=3, requires "gpu=true,zone in (a,b)", prefers "!spot""#;
    assert_eq!(said[0].1.evidence.text, words);
}

fn refused_change_leaves_all_as_it_was<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue("mail", fair_by("tenant", &[])).unwrap();
    let weights = fair_by("account", &[("42", 3)]).weights;
    let change = QueueChange { weights, ..QueueChange::default() };
    let refused = world.set_queue("mail", change.clone());
    let expected = QueueRefusal::OtherKey { key: "account".into(), fair_by: "tenant".into() };
    assert_eq!(refused, Err(expected));
    assert_eq!(world.set_queue("b", change), Err(QueueRefusal::NotFair("account".into())));
    let settings = world.settings();
    assert_eq!(settings.len(), 1);
    assert_eq!(settings[0].settings, fair("tenant", &[]));
}

fn queue_with_settings_is_listed_and_can_be_paused<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue("mail", fair_by("tenant", &[])).unwrap();
    let listed = world.ask(world.store().queues());
    assert_eq!(listed.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>(), ["mail"]);
    assert!(!listed[0].paused);
    let (queue, by) = ("mail".to_owned(), "operator".to_owned());
    world.one(Command::Queue(QueueOrder { queue, paused: true, by }));
    assert!(world.ask(world.store().pauses())[0].paused);
    world.set_queue("mail", fair_by("account", &[])).unwrap();
    assert!(world.ask(world.store().pauses())[0].paused, "it stays paused");
    assert_eq!(world.settings()[0].settings, fair("account", &[]), "and keeps its settings");
}

fn settings_survive_a_crash_and_not_a_reset<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue("mail", fair_by("tenant", &[("42", 3)])).unwrap();
    world.crash();
    assert_eq!(world.settings()[0].settings, fair("tenant", &[("42", 3)]));
    world.one(Command::Reset);
    assert_eq!(world.settings(), []);
}
