use uuid::Uuid;

use super::{Cell, hex_of, parse, plain_text, write};
use crate::transfer::section::{SECTIONS, Section, Sort};

fn text_of(section: &Section, row: &[Cell]) -> String {
    let mut text = String::new();
    write(section, row, &mut text);
    text
}

fn filled(section: &Section, odd: bool) -> Vec<Cell> {
    let cell = |sort: Sort| match sort {
        Sort::Int => Cell::Int(if odd { i64::MIN } else { i64::MAX }),
        Sort::Flag => Cell::Flag(odd),
        Sort::Text => Cell::Text("a \"quoted\"\nline\u{1}\u{2028} ü".into()),
        Sort::Id => Cell::Id(Uuid::from_u128(u128::MAX - 7)),
        Sort::Bytes => Cell::Bytes(if odd { vec![0xff, 0, 0x80] } else { b"plain\n\0".to_vec() }),
    };
    let columns = section.columns.iter();
    columns.map(|c| if c.nullable && odd { Cell::Null } else { cell(c.sort) }).collect()
}

#[test]
fn rows_of_every_section_come_back_from_their_text_on_one_line() {
    for section in SECTIONS {
        for odd in [false, true] {
            let row = filled(section, odd);
            let text = text_of(section, &row);
            assert!(!text.contains('\n'), "{text}");
            assert_eq!(parse(section, &text).unwrap(), row);
            assert_eq!(text_of(section, &parse(section, &text).unwrap()), text);
        }
    }
}

#[test]
fn a_text_with_a_column_too_few_too_many_or_of_another_sort_is_refused() {
    let queue = Section::named("queue").unwrap();
    for (text, said) in [
        (r#"{"name":"a"}"#, "`paused` is missing"),
        (r#"{"name":"a","paused":true,"more":1}"#, "`more` is not a column of queue"),
        (r#"{"name":null,"paused":true}"#, "`name` has no value of its sort"),
        (r#"{"name":"a","paused":1}"#, "`paused` has no value of its sort"),
        (r#"{"name":"a","paused":true"#, "not a row"),
    ] {
        let error = parse(queue, text).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
}

/// An export of a build that knew no keys has the sums of the store that imports it.
#[test]
fn columns_that_were_added_are_left_out_where_they_say_nothing() {
    let class = Section::named("class").unwrap();
    let first = r#"{"id":1,"queue":"q","job_type":"t","route":"","tenant":"","isolated":false}"#;
    let row = parse(class, first).unwrap();
    assert_eq!(row.last(), Some(&Cell::Flag(false)));
    assert_eq!(text_of(class, &row), first);
    let keyed = first.replace('}', r#","keyed":true}"#);
    assert_eq!(text_of(class, &parse(class, &keyed).unwrap()), keyed);
}

#[test]
fn names_of_sections_and_columns_are_given_once_and_keys_are_never_empty() {
    for (at, section) in SECTIONS.iter().enumerate() {
        assert!(SECTIONS.iter().skip(at + 1).all(|other| other.name != section.name));
        assert!(section.key > 0 && section.key_columns().iter().all(|column| !column.nullable));
        for (n, column) in section.columns.iter().enumerate() {
            assert!(section.columns.iter().skip(n + 1).all(|other| other.name != column.name));
        }
    }
}

#[test]
fn text_loses_nul_and_hex_wants_pairs_of_digits() {
    assert_eq!(plain_text("a\0b"), "a\u{fffd}b");
    assert_eq!(hex_of("00ff"), Some(vec![0, 255]));
    assert_eq!(hex_of("0"), None);
    assert_eq!(hex_of("0g"), None);
}
