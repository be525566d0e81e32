use serde_json::json;

use super::{Column, Table};
use crate::output::text_at;

const ID: &str = "01a1fcae-2d50-72c9-9c67-56e57a9c8e7c";

fn table(error: &str) -> Table {
    let mut table = Table::new(&["ID", "ACTION", "STATUS", "ERROR"]);
    table.row(vec![ID.to_owned(), "core.fail".to_owned(), "failed".to_owned(), error.to_owned()]);
    table
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn text_is_wrapped_in_its_column_on_a_terminal_and_nothing_of_it_is_lost() {
    let error = "no such file or directory: /srv/in/2026-11-22/orders.csv, and no other one either";
    let shown = table(error).fit(Some(100)).to_string();
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    let column: Vec<&str> =
        shown.lines().skip(1).flat_map(|line| words(line.get(57..).unwrap_or(""))).collect();
    assert_eq!(column, words(error), "{shown}");
    assert!(shown.lines().nth(1).unwrap().contains("failed  no such"), "{shown}");
}

#[test]
fn text_that_has_no_room_beside_its_row_stands_below_it() {
    let error = "no such file or directory: /srv/in/2026-11-22/orders.csv";
    let mut table = table(error);
    table.row(vec![ID.to_owned(), "core.noop".to_owned(), "completed".to_owned(), "-".to_owned()]);
    let shown = table.fit(Some(60)).to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 5, "{shown}");
    assert!(lines[0].ends_with("STATUS"), "{shown}");
    assert_eq!(lines[2], "    error: no such file or directory:");
    assert!(lines.iter().all(|line| line.chars().count() <= 60), "{shown}");
}

#[test]
fn what_does_not_fit_is_cut_but_never_an_id_or_a_status() {
    let mut table = Table::new(&["ID", "ACTION", "STATUS"]);
    table.row(vec![ID.to_owned(), "a.very.long.name.of.an.action".to_owned(), "requested".into()]);
    let narrow = table.fit(Some(60)).to_string();
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    assert!(narrow.contains(ID) && narrow.contains("requested"), "{narrow}");
    assert!(narrow.contains("a.very") && narrow.contains('…'), "{narrow}");
}

#[test]
fn very_long_text_leaves_room_for_other_rows_of_a_terminal() {
    let shown = table(&"word ".repeat(1000)).fit(Some(100)).to_string();
    assert!(shown.lines().count() < 12 && shown.trim_end().ends_with('…'), "{shown}");
    let one_word = table(&"x".repeat(300)).fit(Some(100)).to_string();
    assert!(one_word.lines().all(|line| line.chars().count() <= 100), "{one_word}");
}

#[test]
fn a_pipe_reads_every_cell_whole_and_the_same_columns_whatever_is_in_them() {
    let columns: &[Column] = &[
        ("NAME", |item| text_at(item, "name")),
        ("BY", |item| text_at(item, "by")),
        ("ERROR", |item| text_at(item, "error")),
    ];
    let shown = Table::for_pipe(&[json!({"name": "a"})], columns).to_string();
    assert_eq!(shown, "NAME  BY  ERROR\na     -   -\n");
    let (by, error) = ("worker ".repeat(30), "no such file ".repeat(90));
    let long = json!({"name": ID, "by": by, "error": error});
    let shown = Table::for_pipe(&[long], columns).to_string();
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(shown.contains(&by) && shown.contains(error.trim_end()), "{shown}");
}

#[test]
fn a_column_without_values_is_left_out() {
    let columns: &[Column] =
        &[("NAME", |item| text_at(item, "name")), ("ERROR", |item| text_at(item, "error"))];
    let items = [json!({"name": "a"}), json!({"name": "b"})];
    assert_eq!(Table::of(&items, columns).to_string(), "NAME\na\nb\n");
    assert_eq!(Table::of(&[], columns).to_string(), "NAME  ERROR\n");
}

#[test]
fn wide_characters_are_counted_as_the_two_columns_that_they_take() {
    let mut table = Table::new(&["NAME", "STATUS"]);
    table.row(vec!["漢字".to_owned(), "ok".to_owned()]);
    table.row(vec!["abcd".to_owned(), "ok".to_owned()]);
    assert_eq!(table.to_string(), "NAME  STATUS\n漢字  ok\nabcd  ok\n");
}

#[test]
fn a_failed_state_is_red_and_the_same_word_elsewhere_is_not() {
    let mut table = Table::new(&["NAME", "STATUS"]).coloured();
    table.row(vec!["failed".to_owned(), "failed".to_owned()]);
    table.row(vec!["b".to_owned(), "completed".to_owned()]);
    let shown = table.to_string();
    let expected =
        "NAME    STATUS\nfailed  \x1b[31mfailed\x1b[0m\nb       \x1b[32mcompleted\x1b[0m\n";
    assert_eq!(shown, expected);
}
