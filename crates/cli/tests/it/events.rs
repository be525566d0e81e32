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
fn a_stream_names_workers_and_asks_for_each_once() {
    let worker = "01a1fcae-2d50-72c9-9c67-56e57a9c8e7c";
    let stub = Stub::start(move |asked, number| {
        if asked.line.starts_with("GET /api/v1/workers/") {
            return (200, format!(r#"{{"data":{{"id":"{worker}","name":"shell-1"}}}}"#));
        }
        if number > 0 {
            return (403, "{\"error\":{\"code\":\"forbidden\",\"message\":\"enough\"}}".to_owned());
        }
        let event = format!(
            r#"{{"time":"t","type":"job.started","data":{{"by":"worker {worker}","worker_id":"{worker}"}}}}"#
        );
        (200, format!("id: a\ndata: {event}\n\nid: b\ndata: {event}\n\n"))
    });
    let said = outlast(&["events", "-f", "--server", &stub.url]);
    assert_eq!(said.out.matches("by worker shell-1\n").count(), 2, "{}", said.out);
    let asked = stub.asked().into_iter().filter(|it| it.line.contains("/workers/")).count();
    assert_eq!(asked, 1);
}

#[test]
fn the_newest_events_are_found_page_by_page_and_printed_oldest_first() {
    let stub = Stub::start(|_, number| match number {
        0 => (200, r#"{"data":[{"id":"5"},{"id":"6"}],"previous_cursor":"@5"}"#.to_owned()),
        1 => (200, r#"{"data":[],"previous_cursor":"@4"}"#.to_owned()),
        2 => (200, r#"{"data":[{"id":"3"}],"previous_cursor":"@3"}"#.to_owned()),
        _ => (200, r#"{"data":[{"id":"1"}],"previous_cursor":null}"#.to_owned()),
    });
    let words = ["events", "--limit", "9", "--since", "3h", "--until", "1h", "-o", "jsonl"];
    let said = outlast(&[&words[..], &["--server", &stub.url]].concat());
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let ids: Vec<&str> = said.out.lines().collect();
    assert_eq!(ids, [r#"{"id":"1"}"#, r#"{"id":"3"}"#, r#"{"id":"5"}"#, r#"{"id":"6"}"#]);
    let asked: Vec<String> = stub.asked().into_iter().map(|asked| asked.line).collect();
    let all = "GET /api/v1/events?since=3h&until=1h&newest=true&limit=";
    let expected = ["9", "7&before=%405", "7&before=%404", "6&before=%403"];
    assert_eq!(asked, expected.map(|it| format!("{all}{it}")));
}

#[test]
fn events_that_are_not_all_shown_say_how_to_see_the_others() {
    let stub = Stub::always(200, r#"{"data":[{"id":"5"},{"id":"6"}],"previous_cursor":"@5"}"#);
    let said = outlast(&["events", "--limit", "2", "--server", &stub.url]);
    let expected = "the newest 2; --limit shows more, --before @5 earlier ones\n";
    assert_eq!((said.code, said.err.as_str()), (0, expected));
    let both = outlast(&["events", "--after", "a", "--until", "1h", "--server", &stub.url]);
    assert_eq!(both.code, 2, "{}", both.err);
}

#[test]
fn events_that_are_far_apart_are_found_page_by_page() {
    let stub = Stub::start(|_, number| match number {
        0 => (200, r#"{"data":[{"id":"1"}],"next_cursor":"a"}"#.to_owned()),
        1 => (200, r#"{"data":[],"next_cursor":"b"}"#.to_owned()),
        2 => (200, r#"{"data":[{"id":"2"}],"next_cursor":"c"}"#.to_owned()),
        _ => (200, r#"{"data":[],"next_cursor":"c"}"#.to_owned()),
    });
    let words = ["events", "--after", "0", "--limit", "3", "-o", "jsonl"];
    let said = outlast(&[&words[..], &["--server", &stub.url]].concat());
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(said.out, "{\"id\":\"1\"}\n{\"id\":\"2\"}\n");
    let asked: Vec<String> = stub.asked().into_iter().map(|asked| asked.line).collect();
    let all = "GET /api/v1/events?stream=false&limit=";
    let expected =
        ["3&cursor=0", "2&cursor=a", "2&cursor=b", "1&cursor=c"].map(|it| format!("{all}{it}"));
    assert_eq!(asked, expected);
}

#[test]
fn search_of_the_log_that_finds_nothing_for_long_says_where_to_go_on() {
    let stub =
        Stub::start(|_, number| (200, format!(r#"{{"data":[],"previous_cursor":"c{number}"}}"#)));
    let said = outlast(&["events", "--type", "worker.*", "--server", &stub.url]);
    let last = stub.asked().len() - 1;
    assert!(last < 30, "{last} pages");
    let expected = format!("0 found so far, and none for long; --before c{last} searches on\n");
    assert_eq!((said.code, said.err), (0, expected));
}
