//! `outlast jobs errors`: which errors there are, and how many jobs ended with each.
//!
//! Errors differ by their words: numbers, ids and times in them do not count. The newest jobs
//! are looked at, up to a number that the user may raise, and it is said how many these were.

use std::collections::HashMap;

use clap::Args as ClapArgs;
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, ago, say, text_at};
use serde_json::{Value, json};

use super::{Filter, PAGE_MAX, page, show};
use crate::command::{Target, search};
use crate::config::Environment;
use crate::output;

/// Statuses of jobs that did not end well, unless others are asked for.
const STATUSES: &str = "failed,timeout,abandoned";

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: Filter,
    /// How many of the newest jobs to look at
    #[arg(long, value_name = "N", default_value_t = 5000,
          value_parser = clap::value_parser!(u32).range(1..))]
    look: u32,
    #[command(flatten)]
    target: Target,
}

const COLUMNS: &[Column] = &[
    ("COUNT", |group| text_at(group, "count")),
    ("ACTION", |group| text_at(group, "action_ref")),
    ("FIRST", |group| ago(group, "first")),
    ("LAST", |group| ago(group, "last")),
    ("EXAMPLE", |group| text_at(group, "example")),
    ("ERROR", show::error),
];

pub(super) async fn run(args: &Args, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let mut filters = args.filter.query(&client).await?;
    if args.filter.status.is_empty() {
        filters.retain(|(name, _)| *name != "status");
        filters.push(("status", Some(STATUSES.to_owned())));
    }
    let mut groups = Groups::default();
    let more = read(&client, &filters, args.look, &mut groups).await?;
    let looked = groups.looked;
    let groups = groups.most_frequent_first();
    output::print_list(args.target.output, &groups, COLUMNS)?;
    let jobs = if looked == 1 { "job" } else { "jobs" };
    if more {
        say(&format!("of the newest {looked} {jobs}; --look looks at more\n"));
    } else if looked == 0 {
        output::say_if_empty(args.target.output, &groups, "no job matches");
    } else {
        say(&format!("of all {looked} {jobs} that match\n"));
    }
    Ok(Exit::Ok)
}

/// Reads up to so many jobs, newest first. Returns whether there may be more.
async fn read(
    client: &Client,
    filters: &[outlast_cli_core::client::Query<'_>],
    look: u32,
    groups: &mut Groups,
) -> Result<bool, Failure> {
    let (mut cursor, mut empty) = (None, 0);
    while groups.looked < look && empty < search::EMPTY_MAX {
        let missing = (look - groups.looked).min(PAGE_MAX);
        let (jobs, _, next) = page(client, filters, missing, cursor).await?;
        empty = if jobs.is_empty() { empty + 1 } else { 0 };
        jobs.iter().for_each(|job| groups.add(job));
        cursor = next;
        if cursor.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Jobs that ended with the same error.
#[derive(Debug)]
struct Group {
    count: u32,
    /// When the first and the last of them ended.
    first: String,
    last: String,
    /// The last of them.
    example: Value,
}

#[derive(Debug, Default)]
struct Groups {
    looked: u32,
    by_error: HashMap<(String, String), Group>,
}

impl Groups {
    fn add(&mut self, job: &Value) {
        self.looked += 1;
        let ended = match text_at(job, "finished").as_str() {
            "-" => text_at(job, "created"),
            ended => ended.to_owned(),
        };
        let key = (text_at(job, "action_ref"), words_of(&show::error(job)));
        let group = self.by_error.entry(key).or_insert_with(|| Group {
            count: 0,
            first: ended.clone(),
            last: ended.clone(),
            example: job.clone(),
        });
        group.count += 1;
        // Times of one form: their text is in their order.
        if ended < group.first {
            group.first.clone_from(&ended);
        }
        if ended > group.last {
            group.last = ended;
            group.example = job.clone();
        }
    }

    fn most_frequent_first(self) -> Vec<Value> {
        let mut groups: Vec<Group> = self.by_error.into_values().collect();
        groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| b.last.cmp(&a.last)));
        let shown = |group: Group| {
            json!({
                "count": group.count,
                "action_ref": group.example["action_ref"],
                "error": group.example["error"],
                "first": group.first,
                "last": group.last,
                "example": group.example["id"],
            })
        };
        groups.into_iter().map(shown).collect()
    }
}

/// The words of an error. What has digits differs from job to job: ids, times, sizes.
fn words_of(error: &str) -> String {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '-';
    let mut words = String::with_capacity(error.len());
    let mut rest = error;
    while let Some(first) = rest.chars().next() {
        let end = match is_of_word(first) {
            true => rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, after) = rest.split_at(end);
        let has_digits = word.contains(|c: char| c.is_ascii_digit());
        words.push_str(if has_digits { "#" } else { word });
        rest = after;
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Groups, words_of};

    #[test]
    fn errors_are_told_apart_by_their_words() {
        let job = "job 01a1fcae-2d50-72c9-9c67-56e57a9c8e7c: timeout after 30s on host-7:8080";
        assert_eq!(words_of(job), "job #: timeout after # on #:#");
        assert_eq!(words_of("no such file: größe.csv"), "no such file: größe.csv");
    }

    #[test]
    fn jobs_are_counted_by_action_and_error() {
        let mut groups = Groups::default();
        let jobs = [
            ("a", "shop.import", "row 7 is empty", "2026-11-22T10:00:03Z"),
            ("b", "shop.import", "row 9 is empty", "2026-11-22T10:00:01Z"),
            ("c", "shop.export", "row 9 is empty", "2026-11-22T10:00:09Z"),
            ("d", "shop.import", "no space left", "2026-11-22T10:00:02Z"),
        ];
        for (id, action, message, finished) in jobs {
            groups.add(&json!({"id": id, "action_ref": action, "finished": finished,
                "error": {"type": "exit_code", "message": message}}));
        }
        assert_eq!(groups.looked, 4);
        let groups = groups.most_frequent_first();
        let error = json!({"type": "exit_code", "message": "row 7 is empty"});
        assert_eq!(groups.len(), 3);
        assert_eq!(
            groups[0],
            json!({"count": 2, "action_ref": "shop.import", "error": error,
            "first": "2026-11-22T10:00:01Z", "last": "2026-11-22T10:00:03Z", "example": "a"})
        );
        assert_eq!(groups[1]["example"], "c", "the latest of those that are as frequent");
    }
}
