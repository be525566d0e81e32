//! Lists that have little to show.

use crate::outlast;
use crate::stub::Stub;

#[test]
fn an_empty_list_says_so_in_words() {
    let body = r#"{"data":[],"jobs":[],"pagination":{"next_cursor":null,"total":0}}"#;
    let stub = Stub::always(200, body);
    for (command, words) in [
        (&["workers", "list"][..], "there are no workers"),
        (&["workers", "list", "--status", "active"], "no worker matches"),
        (&["dead-letters", "list"], "there are no dead letters"),
        (&["queues", "list"], "there are no queues yet"),
        (&["limits", "list"], "there are no limits"),
        (&["actions", "list"], "there are no actions"),
        (&["packs", "list"], "there are no packs"),
        (&["events"], "no event matches"),
        (&["jobs", "list"], "there are no jobs"),
    ] {
        let said = outlast(&[command, &["--server", &stub.url]].concat());
        assert_eq!((said.code, said.err), (0, format!("{words}\n")), "{command:?}");
        let said = outlast(&[command, &["--server", &stub.url, "-o", "json"]].concat());
        assert_eq!((said.out.as_str(), said.err.as_str()), ("[]\n", ""), "{command:?}");
    }
}

/// It once read four million jobs before it said that there is nothing.
#[test]
fn search_that_finds_nothing_for_long_ends_and_says_where_to_go_on() {
    let stub = Stub::start(|_, number| {
        let page = format!(r#"{{"limit":1,"next_cursor":"c{number}","total":null}}"#);
        (200, format!(r#"{{"data":[],"pagination":{page}}}"#))
    });
    let said = outlast(&["jobs", "list", "--status", "timeout", "--server", &stub.url]);
    let last = stub.asked().len() - 1;
    assert!(last < 30, "{last} pages");
    let expected = format!("0 found so far, and none for long; --cursor c{last} searches on\n");
    assert_eq!((said.code, said.err), (0, expected));
}
