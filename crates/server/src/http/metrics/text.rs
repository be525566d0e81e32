//! The Prometheus text format.

use std::fmt::Write as _;

use crate::metrics::histogram::Snapshot;

/// Bounds of a histogram to a second.
pub(super) const MILLIS: f64 = 1_000.0;
pub(super) const MICROS: f64 = 1_000_000.0;

/// A page of metrics as it is written.
#[derive(Default)]
pub(super) struct Text {
    text: String,
}

impl Text {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.text.into_bytes()
    }

    pub(super) fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, count: u64) {
        self.head(name, help, "counter");
        self.sample(name, "", count);
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, help, "gauge");
        self.sample(name, "", value);
    }

    /// Writes a histogram; `unit` is how many of its units are a second.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: &str,
        found: &Snapshot,
        to_a_second: f64,
    ) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bound, count) in found.bounds.iter().zip(&found.counts) {
            below += count;
            let bound = float(*bound) / to_a_second;
            self.sample(
                &format!("{name}_bucket"),
                &format!("{labels}{comma}le=\"{bound}\""),
                below,
            );
        }
        let count = found.count();
        self.sample(&format!("{name}_bucket"), &format!("{labels}{comma}le=\"+Inf\""), count);
        self.sample(&format!("{name}_sum"), labels, float(found.sum) / to_a_second);
        self.sample(&format!("{name}_count"), labels, count);
    }
}

/// Returns text as the value of a label.
pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[expect(clippy::cast_precision_loss, reason = "a number for a page")]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}
