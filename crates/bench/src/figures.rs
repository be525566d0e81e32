//! Figures and the arithmetic on them: median, spread, percentiles.

use std::time::Duration;

use serde_json::{Map, Value, json};

/// What the rounds of a figure are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Jobs a second; more is better.
    PerSecond,
    /// Milliseconds; less is better.
    Milliseconds,
    /// Mebibytes; less is better.
    Mebibytes,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "per_second",
            Self::Milliseconds => "ms",
            Self::Mebibytes => "MiB",
        }
    }
}

/// What one measurement found.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    /// One number a round, in the unit.
    pub(crate) rounds: Vec<f64>,
    /// How long each request or wait took, over all rounds; may be empty.
    pub(crate) lengths: Vec<Duration>,
    /// What else is worth knowing: counts, mostly.
    pub(crate) about: Map<String, Value>,
}

impl Figure {
    pub(crate) fn new(name: &str, unit: Unit) -> Self {
        Self {
            name: name.to_owned(),
            unit,
            rounds: Vec::new(),
            lengths: Vec::new(),
            about: Map::new(),
        }
    }

    pub(crate) fn note(&mut self, name: &str, value: impl Into<Value>) {
        self.about.insert(name.to_owned(), value.into());
    }

    /// How good this is compared with `other`: 1 is as good, less is worse.
    pub(crate) fn part_of(&self, other: &Self) -> Option<f64> {
        let (ours, theirs) = (median(&self.rounds), median(&other.rounds));
        let part = match self.unit {
            Unit::PerSecond => ours / theirs,
            Unit::Milliseconds | Unit::Mebibytes => theirs / ours,
        };
        part.is_finite().then_some(part)
    }

    /// The figure as it is printed: names and meaning of these fields are fixed.
    pub(crate) fn to_json(&self) -> Value {
        let mut lengths = self.lengths.clone();
        lengths.sort_unstable();
        let per_second = match self.unit {
            Unit::PerSecond => rounded(median(&self.rounds)),
            Unit::Milliseconds | Unit::Mebibytes => Value::Null,
        };
        let at = |percent| percentile(&lengths, percent).map_or(Value::Null, |l| rounded(ms(l)));
        let rounds: Vec<Value> = self.rounds.iter().copied().map(rounded).collect();
        let mut json = json!({
            "name": self.name,
            "per_second": per_second,
            "p50_ms": at(50),
            "p99_ms": at(99),
            "rounds": rounds,
            "rounds_unit": self.unit.name(),
            "median": rounded(median(&self.rounds)),
            "min": rounded(spread(&self.rounds).0),
            "max": rounded(spread(&self.rounds).1),
        });
        if let Value::Object(fields) = &mut json {
            fields.extend(self.about.clone());
        }
        json
    }
}

/// The middle one; of an even number, half way between the two in the middle.
pub(crate) fn median(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(at(middle.saturating_sub(1)), at(middle))
    } else {
        at(middle)
    }
}

/// The least and the most.
pub(crate) fn spread(rounds: &[f64]) -> (f64, f64) {
    let least = rounds.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0);
    let most = rounds.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0);
    (least, most)
}

/// The smallest of `sorted` that at least `percent` of all are not above.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// A count over a time, per second.
pub(crate) fn rate(count: usize, took: Duration) -> f64 {
    let seconds = took.as_secs_f64();
    // Counts here are far below what a float holds exactly.
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

pub(crate) fn ms(length: Duration) -> f64 {
    length.as_secs_f64() * 1000.0
}

/// A number as precise as it is meaningful.
pub(crate) fn rounded(number: f64) -> Value {
    json!((number * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Figure, Unit, median, percentile, rate, spread};

    fn millis(numbers: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        numbers.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn median_is_the_middle_whatever_the_order() {
        assert_eq!(median(&[5.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[7.0]), 7.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn spread_is_the_least_and_the_most() {
        assert_eq!(spread(&[5.0, 1.0, 3.0]), (1.0, 5.0));
        assert_eq!(spread(&[]), (0.0, 0.0));
    }

    #[test]
    fn percentile_is_a_length_that_was_measured() {
        let hundred = millis(1..=100);
        let cases = [(50, 50), (99, 99), (100, 100), (1, 1), (0, 1)];
        for (percent, expected) in cases {
            let found = percentile(&hundred, percent);
            assert_eq!(found, Some(Duration::from_millis(expected)), "p{percent}");
        }
        // Of few lengths, the 99th percentile is the longest one, never one too short.
        assert_eq!(percentile(&millis([1, 2, 9]), 99), Some(Duration::from_millis(9)));
        assert_eq!(percentile(&millis([1, 2, 9]), 50), Some(Duration::from_millis(2)));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn rate_of_no_time_is_no_infinity() {
        assert_eq!(rate(10, Duration::from_secs(2)), 5.0);
        assert_eq!(rate(10, Duration::ZERO), 0.0);
    }

    #[test]
    fn figure_has_its_fixed_fields_and_what_was_noted() {
        let mut figure = Figure::new("enqueue", Unit::PerSecond);
        figure.rounds = vec![10.0, 30.0, 20.0];
        figure.lengths = millis([3, 1, 2]);
        figure.note("jobs", 60);
        let expected = serde_json::json!({
            "name": "enqueue", "per_second": 20.0, "p50_ms": 2.0, "p99_ms": 3.0,
            "rounds": [10.0, 30.0, 20.0], "rounds_unit": "per_second",
            "median": 20.0, "min": 10.0, "max": 30.0, "jobs": 60,
        });
        assert_eq!(figure.to_json(), expected);
    }

    #[test]
    fn half_as_good_is_half_the_rate_or_twice_the_time() {
        let cases = [
            (Unit::PerSecond, 50.0, 100.0, Some(0.5)),
            (Unit::Milliseconds, 4.0, 2.0, Some(0.5)),
            (Unit::PerSecond, 50.0, 0.0, None),
        ];
        for (unit, ours, theirs, expected) in cases {
            let figure = |round| Figure { rounds: vec![round], ..Figure::new("it", unit) };
            assert_eq!(figure(ours).part_of(&figure(theirs)), expected);
        }
    }

    #[test]
    fn figure_in_milliseconds_has_no_rate() {
        let mut figure = Figure::new("latency", Unit::Milliseconds);
        figure.rounds = vec![0.5];
        let json = figure.to_json();
        assert!(json["per_second"].is_null() && json["p50_ms"].is_null(), "{json}");
        assert_eq!(json["rounds_unit"], "ms");
    }
}
