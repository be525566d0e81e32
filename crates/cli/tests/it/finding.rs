//! How jobs and workers are found: filters, parts of ids, `@last`, groups of errors.

use crate::stub::Stub;
use crate::{outlast, outlast_with};

const FIRST: &str = "01a1fcae-2d50-72c9-9c67-56e57a9c8e7c";
const SECOND: &str = "01a1fcae-2d51-72c9-9c67-11e57a9c8aaa";

fn lines(stub: &Stub) -> Vec<String> {
    stub.asked().into_iter().map(|asked| asked.line).collect()
}

#[test]
fn filters_of_jobs_are_those_of_the_server_and_failed_jobs_show_their_error() {
    let failed = format!(
        r#"{{"id":"{FIRST}","action_ref":"shop.import","status":"failed",
            "error":{{"type":"exit_code","message":"no space left"}}}}"#
    );
    let retried = format!(
        r#"{{"id":"{SECOND}","status":"requested","error":{{"message":"will be tried again"}}}}"#
    );
    let page = format!(r#"{{"data":[{failed},{retried}],"pagination":{{"next_cursor":null}}}}"#);
    let stub = Stub::always(200, &page);
    let words = [
        "jobs",
        "list",
        "--status",
        "failed,timeout",
        "--key",
        "tenant=4 2",
        "--key",
        "zone=a",
        "--error-contains",
        "no space",
        "--server",
        &stub.url,
    ];
    let said = outlast(&words);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("exit_code: no space left"), "{}", said.out);
    assert!(!said.out.contains("tried again"), "{}", said.out);
    let asked = lines(&stub).remove(0);
    for part in
        ["status=failed%2Ctimeout", "key=tenant%3D4+2", "key=zone%3Da", "error_contains=no+space"]
    {
        assert!(asked.contains(part), "{asked}");
    }
    let wrong = outlast(&["jobs", "list", "--key", "tenant", "--server", &stub.url]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.contains("a key is NAME=VALUE, such as tenant=42"), "{}", wrong.err);
}

#[test]
fn an_order_with_a_status_that_does_not_allow_it_is_refused_before_anything_is_sent() {
    let stub = Stub::always(200, r#"{"data":[],"pagination":{}}"#);
    let words = ["jobs", "retry", "--status", "failed,running", "--server", &stub.url];
    let said = outlast(&words);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("does not apply to jobs of status `running`"), "{}", said.err);
    assert_eq!(lines(&stub), Vec::<String>::new());
}

#[test]
fn a_dry_run_of_named_jobs_shows_them_and_refuses_what_the_server_would() {
    let stub = Stub::start(|asked, _| {
        let (id, status) = match asked.line.as_str() {
            "GET /api/v1/executions/j1" => ("j1", "failed"),
            "GET /api/v1/executions/j2" => ("j2", "completed"),
            _ => {
                return (
                    404,
                    r#"{"error":{"code":"not_found","message":"there is no j3"}}"#.into(),
                );
            }
        };
        let job = r#""action_ref":"core.fail","queue":"mail""#;
        (200, format!(r#"{{"data":{{"id":"{id}","status":"{status}",{job}}}}}"#))
    });
    let dry = |ids: &[&str]| {
        outlast(&[&["jobs", "retry", "--dry-run", "--server", &stub.url], ids].concat())
    };
    let said = dry(&["j1"]);
    assert_eq!((said.code, said.err.as_str()), (0, "1 job; nothing was changed\n"));
    let row: Vec<&str> = said.out.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(row.get(..4).unwrap(), ["j1", "core.fail", "failed", "mail"], "{}", said.out);
    let said = dry(&["j2"]);
    assert_eq!(said.code, 4, "{}", said.err);
    assert!(said.err.contains("job j2 is completed; `retry` applies to jobs that are failed"));
    assert_eq!(dry(&["j3"]).code, 3);
    assert!(stub.asked().iter().all(|asked| asked.line.starts_with("GET ")));
}

#[test]
fn errors_are_grouped_and_it_is_said_how_many_jobs_were_looked_at() {
    let stub = Stub::start(|_, number| {
        let job = |id: usize, message: &str| {
            format!(
                r#"{{"id":"{id}","action_ref":"shop.import","finished":"2026-11-22T10:00:0{id}Z",
                    "error":{{"type":"exit_code","message":"{message}"}}}}"#
            )
        };
        let (jobs, next) = match number {
            0 => (vec![job(4, "row 7 is empty"), job(3, "no space left")], "\"c\""),
            1 => (Vec::new(), "\"d\""),
            _ => (vec![job(2, "row 12 is empty"), job(1, "row 3 is empty")], "null"),
        };
        let jobs = jobs.join(",");
        (200, format!(r#"{{"data":[{jobs}],"pagination":{{"next_cursor":{next}}}}}"#))
    });
    let said = outlast(&["jobs", "errors", "--queue", "q", "--server", &stub.url]);
    assert_eq!((said.code, said.err.as_str()), (0, "of all 4 jobs that match\n"));
    let rows: Vec<Vec<&str>> =
        said.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 3, "{}", said.out);
    assert_eq!((rows[1][0], rows[2][0]), ("3", "1"), "{}", said.out);
    assert!(said.out.contains("exit_code: row 7 is empty"), "{}", said.out);
    let asked = lines(&stub);
    assert!(asked[0].contains("status=failed%2Ctimeout%2Cabandoned"), "{asked:?}");
    assert!(asked[0].contains("queue=q") && asked[2].contains("cursor=d"), "{asked:?}");
}

#[test]
fn groups_of_errors_are_those_of_the_newest_jobs_if_there_are_more() {
    let job = r#"{"id":"1","action_ref":"a","error":{"message":"m"}}"#;
    let page = format!(r#"{{"data":[{job},{job}],"pagination":{{"next_cursor":"c"}}}}"#);
    let stub = Stub::always(200, &page);
    let said = outlast(&["jobs", "errors", "--look", "4", "-o", "json", "--server", &stub.url]);
    assert_eq!(said.err, "of the newest 4 jobs; --look looks at more\n");
    let groups: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&groups[0]["count"], &groups[0]["example"]), (&4.into(), &"1".into()));
}

/// A store with two jobs that were enqueued in the same minute.
fn two_jobs() -> Stub {
    Stub::start(|asked, _| {
        let given = |name: &str| {
            let (_, rest) = asked.line.split_once(&format!("?{name}="))?;
            Some(rest.split('&').next().unwrap_or_default().replace('-', ""))
        };
        let is_meant = |id: &&&str| {
            let digits = id.replace('-', "");
            given("id").is_some_and(|prefix| digits.starts_with(&prefix))
                || given("id_suffix").is_some_and(|suffix| digits.ends_with(&suffix))
        };
        if let Some(id) = asked.line.strip_prefix("GET /api/v1/executions/") {
            let id = id.split('/').next().unwrap_or_default();
            return (200, format!(r#"{{"data":{{"id":"{id}","status":"completed"}}}}"#));
        }
        if asked.line.starts_with("POST") {
            return (201, format!(r#"{{"data":{{"id":"{SECOND}","status":"requested"}}}}"#));
        }
        let found = [&FIRST, &SECOND].into_iter().filter(is_meant);
        let found: Vec<String> = found.map(|id| format!(r#"{{"id":"{id}"}}"#)).collect();
        (200, format!(r#"{{"data":[{}],"pagination":{{"next_cursor":null}}}}"#, found.join(",")))
    })
}

#[test]
fn a_job_is_found_by_the_end_of_its_id_where_its_beginning_is_that_of_others() {
    let stub = two_jobs();
    let show = |id: &str| outlast(&["jobs", "show", id, "--server", &stub.url, "-o", "jsonl"]);
    for (given, id) in [("9c8e7c", FIRST), ("57A9C8AAA", SECOND), ("01a1fcae-2d50", FIRST)] {
        let said = show(given);
        assert!(said.out.contains(id), "{given}: {} {}", said.out, said.err);
    }
    let several = show("01a1fcae");
    assert_eq!(several.code, 4, "{}", several.err);
    assert!(several.err.contains(FIRST) && several.err.contains(SECOND), "{}", several.err);
    assert!(several.err.contains("give more digits"), "{}", several.err);
    let none = show("0bad0bad");
    assert_eq!(none.code, 3);
    assert!(none.err.contains("no job's id begins or ends with 0bad0bad"), "{}", none.err);
}

#[test]
fn the_last_job_is_the_one_that_this_user_enqueued_last_at_this_server() {
    let (stub, other) = (two_jobs(), two_jobs());
    let home = tempfile::tempdir().unwrap();
    let home = home.path().to_str().unwrap();
    let at = |server: &str, words: &[&str]| {
        outlast_with(&[words, &["--server", server]].concat(), &[("HOME", home)])
    };
    let none = at(&stub.url, &["jobs", "show", "@last"]);
    assert_eq!(none.code, 3, "{}", none.err);
    assert!(none.err.contains("`outlast run` sets @last"), "{}", none.err);
    assert_eq!(at(&stub.url, &["run", "core.noop"]).code, 0);
    let said = at(&stub.url, &["jobs", "show", "@last", "-o", "jsonl"]);
    assert!(said.out.contains(SECOND), "{} {}", said.out, said.err);
    assert_eq!(at(&other.url, &["jobs", "show", "@last"]).code, 3, "another server's");
    // Without a place to remember it, jobs are enqueued all the same.
    let said = outlast(&["run", "core.noop", "--server", &stub.url]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}

#[test]
fn workers_that_have_ended_are_listed_if_all_are_asked_for_and_with_how_they_ended() {
    let worker = |name: &str, state: &str, ended: &str| {
        format!(r#"{{"id":"{FIRST}","name":"{name}","state":"{state}","ended":{ended}}}"#)
    };
    let live = worker("one", "running", "null");
    let ended = [worker("two", "stopped", "\"killed\""), worker("three", "stopped", "\"drained\"")];
    let stub = Stub::start(move |asked, _| {
        if asked.line.contains("/workers/orders") {
            return (200, r#"{"data":[]}"#.to_owned());
        }
        let is_live = asked.line.contains("live=true");
        let count = if is_live { 1 } else { 3 };
        let others = if is_live { String::new() } else { format!(",{}", ended.join(",")) };
        let pages = format!(r#"{{"next_cursor":null,"total":{count}}}"#);
        (200, format!(r#"{{"data":[{live}{others}],"pagination":{pages}}}"#))
    });
    let said = outlast(&["workers", "list", "--server", &stub.url]);
    assert_eq!(said.err, "2 workers have ended; --all shows them\n");
    assert!(said.out.contains("one") && !said.out.contains("two"), "{}", said.out);
    let said = outlast(&["workers", "list", "--all", "--server", &stub.url]);
    assert_eq!((said.err.as_str(), said.out.lines().count()), ("", 4));
    assert!(said.out.contains("killed") && said.out.contains("drained"), "{}", said.out);
}
