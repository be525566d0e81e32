//! What is printed: one JSON document, or two tables.

use outlast_cli_core::output::{Table, at, text_at};
use serde_json::{Value, json};

use crate::figures::Figure;

/// Everything that one run found.
#[derive(Debug)]
pub struct Report {
    pub(crate) figures: Vec<Figure>,
    pub(crate) baselines: Value,
    /// Jobs that were in the store of the figures called filled.
    pub(crate) filled: Value,
    /// Address of the server that was named; none for a server of our own.
    pub(crate) server: Option<String>,
}

impl Report {
    /// The JSON document: the names and meaning of its fields are fixed.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let results: Vec<Value> = self.figures.iter().map(Figure::to_json).collect();
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        json!({
            "results": results,
            "ceilings": self.baselines,
            "filled": self.filled,
            "server": self.server,
            "cores": cores,
            "version": env!("CARGO_PKG_VERSION"),
            "at": outlast_cli_core::clock::now().to_string(),
        })
    }
}

/// The JSON document as tables.
#[must_use]
pub fn table(report: &Value) -> String {
    let mut text = results(report).to_string();
    let mut baselines = Table::new(&["CEILING OF THIS MACHINE", "PER SECOND"]);
    for (name, words) in [
        ("fsync_per_second", "durable 4 KiB appends"),
        ("sqlite_commits_per_second", "SQLite, a row a commit"),
        ("sqlite_rows_per_second", "SQLite, rows, 100 a commit"),
        ("postgres_commits_per_second", "PostgreSQL, a row a commit, as many clients"),
        ("postgres_rows_per_second", "PostgreSQL, rows, 1,000 a commit, 4 clients"),
        ("postgres_claims_per_second", "PostgreSQL, rows claimed, 100 a commit"),
        ("http_per_second", "HTTP alone, same client"),
    ] {
        let Some(number) = report["ceilings"].get(name).and_then(Value::as_f64) else { continue };
        baselines.row(vec![words.to_owned(), whole(number)]);
    }
    text.push('\n');
    text.push_str(&baselines.to_string());
    text.push('\n');
    text.push_str(&circumstances(report));
    text
}

fn results(report: &Value) -> Table {
    let mut table = Table::new(&["WHAT", "MEDIAN", "MIN-MAX OF ROUNDS", "P50", "P99", "COMPARED"]);
    for result in report["results"].as_array().into_iter().flatten() {
        let number = |name: &str| result.get(name).and_then(Value::as_f64);
        let of_round = |name| number(name).map_or_else(|| "-".to_owned(), precise);
        let unit = match text_at(result, "rounds_unit").as_str() {
            "per_second" => "/s".to_owned(),
            other => format!(" {other}"),
        };
        let length =
            |name| number(name).map_or_else(|| "-".to_owned(), |n| format!("{} ms", precise(n)));
        let part = number("of_empty")
            .or_else(|| number("of_plain"))
            .map(|part| format!("{:.0} %", part * 100.0));
        table.row(vec![
            text_at(result, "name"),
            format!("{}{unit}", of_round("median")),
            format!("{}-{}{unit}", of_round("min"), of_round("max")),
            length("p50_ms"),
            length("p99_ms"),
            part.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table
}

fn circumstances(report: &Value) -> String {
    let whose = match at(report, "server") {
        Some(_) => "a server that was named",
        None => "a server of its own, client on the same machine",
    };
    let [version, cores, time] = ["version", "cores", "at"].map(|name| text_at(report, name));
    let run = format!("outlast {version}, {cores} cores, {whose}, {time}\n");
    let Some(filled) = at(report, "filled").and_then(Value::as_object) else { return run };
    let count = |count: &Value| whole(count.as_f64().unwrap_or(0.0));
    let counts: Vec<_> =
        filled.iter().map(|(name, jobs)| format!("{} {name}", count(jobs))).collect();
    format!("{run}filled: a store with {} jobs\n", counts.join(", "))
}

/// Thousands in groups, so that a rate is read at a glance.
fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// As many digits as are read, whatever the unit.
fn precise(number: f64) -> String {
    match number {
        ..10.0 => format!("{number:.2}"),
        10.0..100.0 => format!("{number:.1}"),
        _ => whole(number),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{table, whole};

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let cases = [(0.0, "0"), (999.4, "999"), (1000.0, "1,000"), (1_234_567.8, "1,234,568")];
        for (number, expected) in cases {
            assert_eq!(whole(number), expected);
        }
    }

    #[test]
    fn table_has_a_row_a_result_and_says_what_was_in_the_store() {
        let report = json!({
            "results": [
                {"name": "drain.filled", "per_second": 31_000.0, "p50_ms": 0.5, "p99_ms": 1.25,
                 "rounds_unit": "per_second", "median": 31_000.0, "min": 30_000.0,
                 "max": 32_000.0, "of_empty": 0.934},
                {"name": "restart.engine", "per_second": null, "p50_ms": 612.0, "p99_ms": 700.0,
                 "rounds_unit": "ms", "median": 612.0, "min": 600.0, "max": 700.0},
                {"name": "memory.server", "per_second": null, "p50_ms": null, "p99_ms": null,
                 "rounds_unit": "MiB", "median": 30.04, "min": 29.0, "max": 31.0},
            ],
            "ceilings": {"fsync_per_second": 2400.0},
            "filled": {"waiting": 5000, "finished": 0},
            "server": null, "cores": 2, "version": "0.1.0", "at": "now",
        });
        let text = table(&report);
        let has =
            |words: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").contains(words);
        assert!(has("drain.filled 31,000/s 30,000-32,000/s 0.50 ms 1.25 ms 93 %"), "{text}");
        assert!(has("restart.engine 612 ms 600-700 ms 612 ms 700 ms -"), "{text}");
        assert!(has("memory.server 30.0 MiB 29.0-31.0 MiB - - -"), "{text}");
        assert!(has("durable 4 KiB appends 2,400"), "{text}");
        assert!(has("0 finished") && has("5,000 waiting"), "{text}");
    }
}
