//! Orders to several workers, against a server that only records what it is asked.

use crate::outlast;
use crate::stub::Stub;

/// Two live workers and two that are gone, on two pages.
fn fleet() -> Stub {
    Stub::start(|asked, _| {
        let worker = |id: &str, state: &str| {
            format!(r#"{{"id":"{id}","name":"w-{id}","state":"{state}","status":"inactive"}}"#)
        };
        let line = asked.line.as_str();
        if line.starts_with("POST") {
            let kept = r#"[{"id":"c","by_selector":"!spot"}]"#;
            let ordered =
                format!(r#"{{"standing_order":"lifted","reached":[{{"id":"a"}}],"kept":{kept}}}"#);
            return (200, format!(r#"{{"data":{ordered}}}"#));
        }
        let (workers, next) = match line.contains("cursor=c1") {
            true => ([worker("c", "draining"), worker("d", "lapsed")], "null"),
            false => ([worker("a", "running"), worker("b", "stopped")], "\"c1\""),
        };
        let pages = format!(r#"{{"limit":2,"next_cursor":{next},"total":4}}"#);
        (200, format!(r#"{{"data":[{}],"pagination":{pages}}}"#, workers.join(",")))
    })
}

fn orders(stub: &Stub) -> Vec<String> {
    let lines = stub.asked().into_iter().map(|asked| asked.line);
    lines.filter(|line| line.starts_with("POST")).collect()
}

#[test]
fn one_order_goes_to_all_that_match_and_those_that_another_one_keeps_quiet_are_told() {
    let stub = fleet();
    let chosen = ["--pool", "gpu", "--selector", "zone=a"];
    let words = [&["workers", "resume", "--server", &stub.url][..], &chosen].concat();
    let said = outlast(&words);
    assert_eq!(said.code, 4, "{}", said.err);
    assert!(said.err.contains("1 stay quiet"), "{}", said.err);
    assert!(said.err.contains("resume \"!spot\" too"), "{}", said.err);
    assert_eq!(said.out.lines().count(), 3, "{}", said.out);
    let listed = stub.asked().remove(0).line;
    assert!(listed.contains("selector=pool%3Dgpu%2Czone%3Da"), "{listed}");
    assert_eq!(orders(&stub), ["POST /api/v1/workers/orders"]);
}

#[test]
fn a_dry_run_lists_whom_the_order_would_go_to_and_sends_none() {
    let stub = fleet();
    let url = &stub.url;
    let said = outlast(&["workers", "drain", "--pool", "gpu", "--dry-run", "--server", url]);
    assert_eq!(said.code, 0, "{}", said.err);
    let would = "the order would also hold for workers that start later";
    assert_eq!(said.err, format!("2 workers; nothing was changed\n{would}\n"));
    assert!(said.out.contains("w-a") && said.out.contains("w-c"), "{}", said.out);
    assert!(!said.out.contains("w-b") && !said.out.contains("w-d"), "{}", said.out);
    assert_eq!(orders(&stub), Vec::<String>::new());
}

#[test]
fn an_order_that_no_live_worker_gets_is_an_error() {
    let stub = Stub::start(|asked, _| {
        let answer = match asked.line.starts_with("POST") {
            true => r#"{"data":{"standing_order":"unchanged","reached":[],"kept":[]}}"#,
            false => r#"{"data":[{"id":"b","name":"w-b","state":"stopped"}]}"#,
        };
        (200, answer.to_owned())
    });
    let said = outlast(&["workers", "resume", "--selector", "zone=a", "--server", &stub.url]);
    assert_eq!(said.code, 3);
    assert!(said.err.starts_with("error: no live worker matches zone=a\nhint: "), "{}", said.err);
    let both = outlast(&["workers", "drain", "w", "--pool", "gpu", "--server", &stub.url]);
    assert_eq!((both.code, both.out.as_str()), (2, ""));
    assert_eq!(orders(&stub), ["POST /api/v1/workers/orders"]);
}
