//! The files that arrive for the pipeline, and what is to become of them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

/// Units that a file has readings of.
const UNITS: usize = 7;
/// Minutes in the day that a file is of.
const ROWS: usize = 400;

/// A file of readings.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    name: String,
    readings: Vec<i64>,
}

impl Arrival {
    /// A file of this name; the number makes its readings its own.
    pub(super) fn new(name: String, number: i64) -> Self {
        let rows = i64::try_from(ROWS).expect("few");
        let readings = (0..rows).map(|row| number * 10_000 + row * row % 977 - row % 13).collect();
        Self { name, readings }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn rows(&self) -> usize {
        self.readings.len()
    }

    pub(super) fn sum(&self) -> i64 {
        self.readings.iter().sum()
    }

    /// Puts it into the folder as senders do: whole, or not under this name.
    pub(super) fn arrive(&self, folder: &Path) {
        let part = folder.join(format!("{}.part", self.name));
        std::fs::write(&part, self.csv(|_, reading| reading)).expect("a file");
        std::fs::rename(part, folder.join(&self.name)).expect("its name");
    }

    /// What is to be delivered: how far each unit has moved since its first reading.
    pub(super) fn results(&self) -> String {
        let mut first = HashMap::new();
        for (row, reading) in self.readings.iter().enumerate() {
            first.entry(row % UNITS).or_insert(*reading);
        }
        self.csv(|unit, reading| reading - first[&unit])
    }

    fn csv(&self, value: impl Fn(usize, i64) -> i64) -> String {
        let mut text = "unit,at,micrometres\n".to_owned();
        for (row, reading) in self.readings.iter().enumerate() {
            let (unit, hour, minute) = (row % UNITS, row / 60, row % 60);
            let value = value(unit, *reading);
            writeln!(text, "unit-{unit},2026-11-27T{hour:02}:{minute:02}:00Z,{value}")
                .expect("text grows");
        }
        text
    }
}
