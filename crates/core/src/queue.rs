//! Settings of a queue: what an operator wants of it beyond pausing.
//!
//! A setting that is not there has no effect. A change names what it changes and leaves the rest
//! as it is.

use std::collections::BTreeMap;

use crate::job::{DeadLetterReason, State};
use crate::selector::{Placement, Selector};

/// Most weights of a queue: each server keeps all of them in memory.
pub const WEIGHTS_MAX: usize = 1_000;
/// Highest weight.
pub const WEIGHT_MAX: u32 = 1_000;
/// Most rules of a queue about dead letters.
pub const LETTER_RULES_MAX: usize = 10;
/// Highest bound of a queue's depth.
pub const DEPTH_MAX: u32 = 1_000_000_000;

/// What is set for a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSettings {
    /// How its jobs share the slots; `None` takes the oldest first.
    pub fair: Option<Fair>,
    /// How many jobs may wait in it; `None` for any number.
    pub max_depth: Option<u32>,
    /// Which workers all its jobs run on, besides what each asks for itself.
    pub placement: Placement,
    /// What happens when its jobs become dead letters, besides what the configuration says.
    pub dead_letters: Vec<LetterRule>,
}

/// What happens when a job becomes a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterRule {
    /// For which reasons; for all if it is empty.
    pub reasons: Vec<DeadLetterReason>,
    /// The address that a webhook is sent to.
    pub webhook: Option<String>,
    /// The action that runs.
    pub action: Option<String>,
}

/// The states of a job that waits: it counts into the depth of its queue.
pub const WAITING: [State; 4] =
    [State::Scheduled, State::Available, State::Pending, State::Retryable];

/// Whether a job in this state counts into the depth of its queue.
#[must_use]
pub fn waits(state: State) -> bool {
    WAITING.contains(&state)
}

/// How full a bounded queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// How many jobs wait.
    pub jobs: u64,
    /// How many may.
    pub max: u32,
}

impl Depth {
    /// Whether a request may be stored that lets so many more jobs wait. One that adds none may,
    /// even if more wait than may: a job that takes the place of another one does no harm.
    #[must_use]
    pub fn has_room_for(self, more: i64) -> bool {
        match u64::try_from(more) {
            Ok(more) if more > 0 => self.jobs.saturating_add(more) <= u64::from(self.max),
            Ok(_) | Err(_) => true,
        }
    }
}

/// Jobs share slots by the value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fair {
    /// The name of the key.
    pub key: String,
    /// The weights of values; the others have 1. None of these is 1.
    pub weights: BTreeMap<String, u32>,
}

impl Fair {
    /// Returns the weight of a value; `None` is the share of jobs without the key.
    #[must_use]
    pub fn weight(&self, value: Option<&str>) -> u32 {
        value.and_then(|value| self.weights.get(value)).copied().unwrap_or(1).max(1)
    }
}

/// What becomes of one setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is removed.
    Unset,
    /// It is this from now on.
    Set(T),
}

impl<T> Change<T> {
    /// Returns what the setting is after the change.
    pub fn apply(self, before: Option<T>) -> Option<T> {
        match self {
            Self::Keep => before,
            Self::Unset => None,
            Self::Set(value) => Some(value),
        }
    }
}

/// Changes of a queue's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueChange {
    /// The key by which jobs share slots. Another key than before drops all weights.
    pub fair_by: Change<String>,
    /// Weights of values; 1 removes one.
    pub weights: Vec<Weight>,
    /// How many jobs may wait, from 1 to [`DEPTH_MAX`].
    pub max_depth: Change<u32>,
    /// What a worker must match to run any of its jobs.
    pub requires: Change<Selector>,
    /// Which workers its jobs prefer, after what they prefer themselves.
    pub prefers: Change<Selector>,
    /// What happens when its jobs become dead letters: in place of all rules of before.
    pub dead_letters: Change<Vec<LetterRule>>,
}

/// The weight of a value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// The name of the key: the one that jobs share slots by.
    pub key: String,
    /// The value.
    pub value: String,
    /// From 1 to [`WEIGHT_MAX`].
    pub weight: u32,
}

/// Why the settings of a queue stay as they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueRefusal {
    /// A weight was given, and the jobs of the queue do not share slots.
    #[error("weight of key `{0}`: the queue has no fair_by")]
    NotFair(String),
    /// A weight was given for another key than the one that jobs share slots by.
    #[error("weight of key `{key}`: the queue is fair by `{fair_by}`")]
    OtherKey {
        /// The key of the weight.
        key: String,
        /// The key that jobs share slots by.
        fair_by: String,
    },
    /// There would be more than [`WEIGHTS_MAX`] weights.
    #[error("there are too many weights; a queue has at most {WEIGHTS_MAX}")]
    TooManyWeights,
}

impl QueueSettings {
    /// Returns the settings after a change.
    ///
    /// # Errors
    /// Returns why they stay as they are.
    pub fn changed(&self, change: &QueueChange) -> Result<Self, QueueRefusal> {
        let max_depth = change.max_depth.clone().apply(self.max_depth);
        let Placement { requires, prefers } = self.placement.clone();
        let after = |change: &Change<Selector>, before| change.clone().apply(Some(before));
        let placement = Placement {
            requires: after(&change.requires, requires).unwrap_or_default(),
            prefers: after(&change.prefers, prefers).unwrap_or_default(),
        };
        let letters = change.dead_letters.clone().apply(Some(self.dead_letters.clone()));
        let dead_letters = letters.unwrap_or_default();
        Ok(Self { fair: self.fair_after(change)?, max_depth, placement, dead_letters })
    }

    fn fair_after(&self, change: &QueueChange) -> Result<Option<Fair>, QueueRefusal> {
        let before = self.fair.as_ref();
        let key = change.fair_by.clone().apply(before.map(|fair| fair.key.clone()));
        let Some(key) = key else {
            let refusal = |weight: &Weight| Err(QueueRefusal::NotFair(weight.key.clone()));
            return change.weights.first().map_or(Ok(None), refusal);
        };
        let same = before.filter(|fair| fair.key == key);
        let mut weights = same.map(|fair| fair.weights.clone()).unwrap_or_default();
        for Weight { key: of, value, weight } in &change.weights {
            if *of != key {
                return Err(QueueRefusal::OtherKey { key: of.clone(), fair_by: key });
            }
            if *weight == 1 {
                weights.remove(value);
            } else {
                weights.insert(value.clone(), *weight);
            }
        }
        if weights.len() > WEIGHTS_MAX {
            return Err(QueueRefusal::TooManyWeights);
        }
        Ok(Some(Fair { key, weights }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(key: &str, value: &str, weight: u32) -> Weight {
        Weight { key: key.into(), value: value.into(), weight }
    }

    fn fair(key: &str, weights: &[(&str, u32)]) -> QueueSettings {
        let weights = weights.iter().map(|(value, weight)| ((*value).into(), *weight)).collect();
        let fair = Some(Fair { key: key.into(), weights });
        QueueSettings { fair, ..QueueSettings::default() }
    }

    fn by(key: &str, weights: Vec<Weight>) -> QueueChange {
        QueueChange { fair_by: Change::Set(key.into()), weights, ..QueueChange::default() }
    }

    #[test]
    fn only_what_a_change_names_is_changed() {
        let none = QueueSettings::default();
        let set = none.changed(&by("tenant", vec![weight("tenant", "42", 3)])).unwrap();
        assert_eq!(set, fair("tenant", &[("42", 3)]));
        let more =
            QueueChange { weights: vec![weight("tenant", "7", 2)], ..QueueChange::default() };
        let more = set.changed(&more).unwrap();
        assert_eq!(more, fair("tenant", &[("42", 3), ("7", 2)]));
        assert_eq!(more.changed(&QueueChange::default()).unwrap(), more);
        let fewer = by("tenant", vec![weight("tenant", "42", 1)]);
        assert_eq!(more.changed(&fewer).unwrap(), fair("tenant", &[("7", 2)]));
    }

    #[test]
    fn weights_go_with_their_key() {
        let set = fair("tenant", &[("42", 3)]);
        assert_eq!(set.changed(&by("account", vec![])).unwrap(), fair("account", &[]));
        let unset = QueueChange { fair_by: Change::Unset, ..QueueChange::default() };
        assert_eq!(set.changed(&unset).unwrap(), QueueSettings::default());
    }

    #[test]
    fn weights_need_the_key_that_the_queue_is_fair_by() {
        let weights = vec![weight("account", "42", 3)];
        let change = QueueChange { weights, ..QueueChange::default() };
        let refused = QueueSettings::default().changed(&change).unwrap_err();
        assert_eq!(refused, QueueRefusal::NotFair("account".into()));
        let refused = fair("tenant", &[]).changed(&change).unwrap_err();
        let expected = QueueRefusal::OtherKey { key: "account".into(), fair_by: "tenant".into() };
        assert_eq!(refused, expected);
        let many = (0..=WEIGHTS_MAX).map(|n| weight("tenant", &n.to_string(), 2)).collect();
        let refused = QueueSettings::default().changed(&by("tenant", many)).unwrap_err();
        assert_eq!(refused, QueueRefusal::TooManyWeights);
    }

    #[test]
    fn bound_and_shares_are_set_apart() {
        let bound = |max_depth| QueueChange { max_depth, ..QueueChange::default() };
        let set = fair("tenant", &[("42", 3)]).changed(&bound(Change::Set(10))).unwrap();
        assert_eq!(set, QueueSettings { max_depth: Some(10), ..fair("tenant", &[("42", 3)]) });
        assert_eq!(set.changed(&by("account", vec![])).unwrap().max_depth, Some(10));
        assert_eq!(set.changed(&bound(Change::Keep)).unwrap(), set);
        assert_eq!(set.changed(&bound(Change::Unset)).unwrap(), fair("tenant", &[("42", 3)]));
    }

    #[test]
    fn rules_about_dead_letters_replace_those_of_before() {
        let rule = |action: &str| LetterRule {
            reasons: vec![DeadLetterReason::Exhausted],
            webhook: None,
            action: Some(action.into()),
        };
        let letters = |dead_letters| QueueChange { dead_letters, ..QueueChange::default() };
        let set = fair("tenant", &[]).changed(&letters(Change::Set(vec![rule("a.b")]))).unwrap();
        assert_eq!(set, QueueSettings { dead_letters: vec![rule("a.b")], ..fair("tenant", &[]) });
        assert_eq!(set.changed(&letters(Change::Keep)).unwrap(), set);
        let other = set.changed(&letters(Change::Set(vec![rule("c.d")]))).unwrap();
        assert_eq!(other.dead_letters, [rule("c.d")]);
        assert_eq!(other.changed(&letters(Change::Unset)).unwrap(), fair("tenant", &[]));
    }

    #[test]
    fn what_is_asked_of_workers_is_set_apart_from_the_rest() {
        let selector = |text: &str| text.parse::<Selector>().unwrap();
        let change =
            |requires, prefers| QueueChange { requires, prefers, ..QueueChange::default() };
        let gpu = change(Change::Set(selector("gpu=true")), Change::Set(selector("zone=a")));
        let set = fair("tenant", &[("42", 3)]).changed(&gpu).unwrap();
        let placement = Placement { requires: selector("gpu=true"), prefers: selector("zone=a") };
        assert_eq!(set, QueueSettings { placement, ..fair("tenant", &[("42", 3)]) });
        let other = set.changed(&change(Change::Set(selector("!spot")), Change::Keep)).unwrap();
        assert_eq!(other.placement.requires, selector("!spot"));
        assert_eq!(other.placement.prefers, selector("zone=a"));
        assert_eq!(other.changed(&by("account", vec![])).unwrap().placement, other.placement);
        let none = other.changed(&change(Change::Unset, Change::Set(selector("")))).unwrap();
        assert_eq!(none, fair("tenant", &[("42", 3)]));
    }

    #[test]
    fn queue_takes_jobs_up_to_its_bound_and_not_one_more() {
        let room = |jobs, more| Depth { jobs, max: 10 }.has_room_for(more);
        assert!(room(0, 10) && room(9, 1) && room(4, 6));
        assert!(!room(0, 11) && !room(9, 2) && !room(10, 1) && !room(0, i64::MAX));
        // More wait than may, since the bound was lowered or jobs came back.
        assert!(!room(11, 1) && !room(u64::MAX, 1));
        assert!(room(10, 0) && room(11, 0) && room(11, -1), "nothing is added");
    }

    #[test]
    fn jobs_that_run_or_have_ended_do_not_wait() {
        let waiting: Vec<State> = State::ALL.into_iter().filter(|state| waits(*state)).collect();
        assert_eq!(waiting.len(), WAITING.len());
        assert!(
            !waits(State::Active) && !State::ALL.iter().any(|it| it.is_terminal() && waits(*it))
        );
    }

    #[test]
    fn value_without_a_weight_counts_once() {
        let settings = fair("tenant", &[("42", 3)]);
        let fair = settings.fair.unwrap();
        assert_eq!([fair.weight(Some("42")), fair.weight(Some("7")), fair.weight(None)], [3, 1, 1]);
    }
}
