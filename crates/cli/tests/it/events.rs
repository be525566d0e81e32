//! `outlast events`: pages, and `--follow` over connections that break.

use crate::outlast;
use crate::stub::Stub;

#[test]
fn event_whose_connection_is_cut_behind_its_id_is_not_skipped() {
    let stub = Stub::start(|_, number| match number {
        0 => (200, "id: a\ndata: {\"n\":1}\n\nid: b\n".to_owned()),
        1 => (200, "id: b\ndata: {\"n\":2}\n\n".to_owned()),
        _ => (403, "{\"error\":{\"code\":\"forbidden\",\"message\":\"enough\"}}".to_owned()),
    });
    let said = outlast(&["events", "-f", "-o", "jsonl", "--server", &stub.url]);
    assert_eq!(said.out, "{\"n\":1}\n{\"n\":2}\n", "{}", said.err);
    let cursors: Vec<_> = stub
        .asked()
        .iter()
        .map(|asked| asked.line.split_once("cursor=").map(|(_, rest)| rest.to_owned()))
        .collect();
    assert_eq!(cursors, [None, Some("a".to_owned()), Some("b".to_owned())]);
}

#[test]
fn events_that_are_far_apart_are_found_page_by_page() {
    let stub = Stub::start(|_, number| match number {
        0 => (200, r#"{"data":[{"id":"1"}],"next_cursor":"a"}"#.to_owned()),
        1 => (200, r#"{"data":[],"next_cursor":"b"}"#.to_owned()),
        2 => (200, r#"{"data":[{"id":"2"}],"next_cursor":"c"}"#.to_owned()),
        _ => (200, r#"{"data":[],"next_cursor":"c"}"#.to_owned()),
    });
    let said = outlast(&["events", "--limit", "3", "-o", "jsonl", "--server", &stub.url]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(said.out, "{\"id\":\"1\"}\n{\"id\":\"2\"}\n");
    let asked: Vec<String> = stub.asked().into_iter().map(|asked| asked.line).collect();
    let all = "GET /api/v1/events?stream=false&limit=";
    let expected = ["3", "2&cursor=a", "2&cursor=b", "1&cursor=c"].map(|it| format!("{all}{it}"));
    assert_eq!(asked, expected);
}

#[test]
fn search_of_the_log_that_finds_nothing_for_long_says_where_to_go_on() {
    let stub =
        Stub::start(|_, number| (200, format!(r#"{{"data":[],"next_cursor":"c{number}"}}"#)));
    let said = outlast(&["events", "--type", "worker.*", "--server", &stub.url]);
    let last = stub.asked().len() - 1;
    assert!(last < 30, "{last} pages");
    let expected = format!("0 found so far, and none for long; --after c{last} searches on\n");
    assert_eq!((said.code, said.err), (0, expected));
}
