//! Dead letters, and failures by type and error.

use std::collections::BTreeMap;

use outlast_core::job::{DeadLetterReason, State};
use outlast_core::time::Timestamp;
use outlast_dashboard::pages::sheet::{Cell, Field, Form, Row, Section, Table};
use outlast_dashboard::{Flash, Place};
use outlast_store::query::{JobQuery, LetterFilter, Page};

use super::job::message;
use super::jobs::{encoded, quoted, short};
use super::sheet::{self, Head};
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;

/// How many dead letters are on a page.
const LETTERS: u32 = 50;
/// How often the store is asked for them.
const READS_MAX: usize = 4;
/// How many failed jobs are looked at for groups: the latest ones.
const FAILED: u32 = 500;

const FIELDS: [(&str, &str, &str); 4] = [
    ("queue", "Queue", ""),
    ("type", "Type", ""),
    ("error_contains", "Error contains", ""),
    ("since", "Since", "2h"),
];

fn query(req: &ApiRequest, now: Timestamp) -> Result<JobQuery, ApiError> {
    let reason = req.query("reason").and_then(|word| reason(&word));
    let letters = LetterFilter { reason, from: req.time("since", now)?, before: None };
    let page = Page { limit: LETTERS, cursor: req.query("cursor") };
    Ok(JobQuery {
        queue: req.query("queue"),
        job_type: req.query("type"),
        error: req.query("error_contains"),
        letters: Some(letters),
        ..JobQuery::all(page)
    })
}

fn reason(word: &str) -> Option<DeadLetterReason> {
    DeadLetterReason::ALL.into_iter().find(|reason| reason.as_str() == word)
}

pub(super) async fn list(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let now = req.app.now().await?;
    let query = query(req, now)?;
    let has_cursor = query.page.cursor.is_some();
    let found = req.app.engine.store().dead_letters(query).await;
    let found = found.map_err(|error| ApiError::of_page(error, has_cursor))?;
    let frame =
        Head::new(Place::DeadLetters, "Dead letters", command(req)).saying(said).frame(req).await;
    let root = frame.root();
    let hidden = &req.app.engine.settings().hidden;
    let rows = found.letters.iter().map(|letter| Row {
        key: sheet::key(letter.job.job.id),
        testid: Some("dead-letter".to_owned()),
        cells: vec![
            sheet::job(&root, letter.job.job.id),
            Cell::Text(letter.job.job.key.job_type.clone()),
            Cell::Text(letter.job.job.key.queue.clone()),
            Cell::Text(letter.reason.as_str().to_owned()),
            Cell::At(letter.at),
            Cell::Text(short(
                &message(letter.job.error.as_deref(), hidden).unwrap_or_default(),
                200,
            )),
        ],
    });
    let given = given(req);
    let next = found.next.map(|cursor| {
        (format!("dead-letters?{given}cursor={}", encoded(&cursor)), "Older dead letters")
    });
    let all = found.total.map(|total| format!("{total} match. ")).unwrap_or_default();
    let table = Table {
        name: "letters",
        caption: format!("{all}The latest ones first."),
        columns: vec!["Job", "Type", "Queue", "Reason", "Since", "Error"],
        rows: rows.collect(),
        empty: "No dead letter matches.",
        grows: None,
        next,
    };
    let reasons: Vec<&str> =
        std::iter::once("").chain(DeadLetterReason::ALL.map(DeadLetterReason::as_str)).collect();
    let mut fields: Vec<Field> = FIELDS
        .map(|(name, label, example)| {
            Field::word(name, label, req.query(name).unwrap_or_default()).such_as(example)
        })
        .to_vec();
    fields.push(
        Field::word("reason", "Reason", req.query("reason").unwrap_or_default()).of(&reasons),
    );
    let choose = Form {
        name: "filter".to_owned(),
        action: "dead-letters".to_owned(),
        label: "Filter".to_owned(),
        fields,
        ..Form::default()
    };
    Ok(sheet::page(frame, vec![Section::Filter(choose), Section::Table(table)]))
}

/// The filter as it stands in a query, ready for one more field.
fn given(req: &ApiRequest) -> String {
    let names = FIELDS.iter().map(|(name, ..)| *name).chain(["reason"]);
    let given = names.filter_map(|name| Some((name, req.query(name)?)));
    given.map(|(name, value)| format!("{name}={}&", encoded(&value))).collect()
}

fn command(req: &ApiRequest) -> String {
    let names = [
        ("queue", "--queue"),
        ("type", "--type"),
        ("reason", "--reason"),
        ("since", "--since"),
        ("error_contains", "--error-contains"),
    ];
    let given = names.iter().filter_map(|(name, flag)| Some((flag, req.query(name)?)));
    let flags = given.map(|(flag, value)| format!(" {flag} {}", quoted(&value)));
    format!("outlast dead-letters list{}", flags.collect::<String>())
}

/// Failures of one type with the same error, as far as what differs from job to job is left out.
#[derive(Default)]
struct Group {
    count: u64,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    example: Option<String>,
    letters: u64,
}

pub(super) async fn failures(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let (store, hidden) = (req.app.engine.store(), &req.app.engine.settings().hidden);
    let frame =
        Head::new(Place::Failures, "Failures", "outlast jobs errors").saying(said).frame(req).await;
    let root = frame.root();
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    let (mut looked_at, mut cursor) = (0_u32, None);
    for _ in 0..READS_MAX {
        if looked_at >= FAILED {
            break;
        }
        let page = Page { limit: (FAILED - looked_at).min(250), cursor };
        let query = JobQuery { states: vec![State::Discarded], ..JobQuery::all(page) };
        let found = store.jobs(query).await?;
        looked_at += u32::try_from(found.jobs.len()).unwrap_or(u32::MAX);
        for job in &found.jobs {
            let error = message(job.error.as_deref(), hidden).unwrap_or_default();
            let group =
                groups.entry((job.job.key.job_type.clone(), fingerprint(&error))).or_default();
            let at = job.finished.unwrap_or(job.since);
            group.count += 1;
            group.letters += u64::from(job.dead_letter.is_some());
            group.first = Some(group.first.map_or(at, |first| first.min(at)));
            group.last = Some(group.last.map_or(at, |last| last.max(at)));
            group.example.get_or_insert_with(|| job.job.id.to_string());
        }
        cursor = found.next;
        if cursor.is_none() {
            break;
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
    let rows = groups.iter().map(|((job_type, error), group)| Row {
        key: key_of(job_type, error),
        testid: Some("failure".to_owned()),
        cells: vec![
            Cell::Link(
                job_type.clone(),
                format!(
                    "{root}jobs?status=failed,timeout,abandoned&action_ref={}",
                    encoded(job_type)
                ),
            ),
            Cell::Text(short(error, 200)),
            Cell::Count(group.count),
            Cell::Count(group.letters),
            Cell::at(group.first),
            Cell::at(group.last),
            group
                .example
                .as_ref()
                .map_or_else(|| Cell::Text(String::new()), |id| sheet::job(&root, id)),
        ],
    });
    let words = match cursor {
        Some(_) => format!("Of the {FAILED} latest failed jobs; there are more."),
        None => "Of all failed jobs that are kept.".to_owned(),
    };
    let table = Table {
        name: "failures",
        caption: format!("{words} Numbers and ids in an error do not make it another one."),
        columns: vec!["Type", "Error", "Jobs#", "Dead letters#", "First", "Last", "For instance"],
        rows: rows.collect(),
        empty: "No job has failed.",
        grows: None,
        next: None,
    };
    Ok(sheet::page(frame, vec![Section::Table(table)]))
}

pub(super) fn key_of(job_type: &str, error: &str) -> String {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    (job_type, error).hash(&mut hasher);
    format!("{:x}", hasher.finish())
}

/// An error without what differs from job to job: numbers, and words with digits.
fn fingerprint(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    let words = line.split(' ').map(|word| {
        let digits = word.chars().filter(char::is_ascii_digit).count();
        if digits == 0 {
            word.to_owned()
        } else if word.len() >= 8 && digits * 4 >= word.len() {
            "…".to_owned()
        } else {
            let mut out = String::new();
            for c in word.chars() {
                match c.is_ascii_digit() {
                    true if out.ends_with('N') => {}
                    true => out.push('N'),
                    false => out.push(c),
                }
            }
            out
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn errors_that_differ_in_numbers_and_ids_are_one() {
        let one = fingerprint("order 4711 of 0198c0de-71f3 is gone after 12 s\nsecond line");
        assert_eq!(one, "order N of … is gone after N s");
        assert_eq!(one, fingerprint("order 9 of 0198ffff-0012 is gone after 3 s"));
        assert_ne!(one, fingerprint("order 9 is gone"));
    }
}
