//! Client commands against a server that answers as told.

use serde_json::Value;

use crate::stub::Stub;
use crate::{outlast, outlast_with};

const JOB: &str = r#"{"data":{"id":"j1","action_ref":"core.echo","status":"completed","attempt":1,
    "queue":"default","worker":{"id":"w","name":"w1"},"created":"2026-01-02T03:04:05Z"}}"#;

fn check(status: u16, body: &str, code: i32, err: &str) {
    let stub = Stub::always(status, body);
    let said = outlast(&["jobs", "show", "j1", "--server", &stub.url]);
    assert_eq!((said.code, said.err.trim_end(), said.out.as_str()), (code, err, ""));
}

#[test]
fn each_refusal_has_its_exit_code_and_says_what_the_server_said() {
    check(404, r#"{"error":{"message":"no execution j1"}}"#, 3, "error: no execution j1");
    check(409, r#"{"error":{"message":"job is completed"}}"#, 4, "error: job is completed");
    let hint = "hint: give a token with --token or OUTLAST_TOKEN";
    check(401, r#"{"error":{"message":"who?"}}"#, 5, &format!("error: who?\n{hint}"));
    check(422, r#"{"error":{"message":"bad","hint":"good"}}"#, 2, "error: bad\nhint: good");
    check(500, "", 1, "error: the server answered 500");
    check(503, "", 6, "error: the server answered 503\nhint: try again in a moment");
}

/// Some asked for a list instead, and some for what no one had named.
#[test]
fn a_name_that_is_empty_or_no_name_is_refused_before_anything_is_asked() {
    let stub = Stub::always(200, r#"{"data":[]}"#);
    for words in [
        &["jobs", "show", ""][..],
        &["jobs", "cancel", ""],
        &["jobs", "logs", ""],
        &["dead-letters", "show", ""],
        &["workers", "drain", ""],
        &["queues", "pause", ""],
        &["run", ""],
        &["worker", "--name", ""],
    ] {
        let said = outlast(&[words, &["--server", &stub.url]].concat());
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{words:?} {}", said.err);
        assert!(said.err.contains("a value is required for"), "{words:?} {}", said.err);
    }
    let long = "x".repeat(100_000);
    for (name, what) in [("..", "`..` is not an id or name"), (&long, "is too long")] {
        let said = outlast(&["actions", "show", name, "--server", &stub.url]);
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(said.err.contains(what), "{}", said.err);
    }
    assert_eq!(stub.asked().len(), 0);
    assert_eq!(outlast(&["token", "new", "--name", ""]).code, 2);
}

/// They were taken for flags.
#[test]
fn negative_numbers_are_refused_for_what_they_are() {
    for (words, what) in [
        (&["run", "core.echo", "--delay", "-5"][..], "--delay is `-5`, which is not a duration"),
        (&["jobs", "list", "--limit", "-1"], "invalid value '-1' for '--limit <LIMIT>'"),
    ] {
        let said = outlast(words);
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(said.err.contains(what), "{}", said.err);
    }
}

#[test]
fn an_empty_list_says_when_its_queue_does_not_exist() {
    let answer = r#"{"data":[],"queues":["mail"],"pagination":{"total":0}}"#;
    let stub = Stub::always(200, answer);
    for (words, what) in [
        (&["--queue", "nosuch"][..], "there is no queue `nosuch`; known queues are mail\n"),
        (&["--queue", "mial"], "there is no queue `mial`; did you mean `mail`?\n"),
        (&["--queue", "mail"], "no job matches\n"),
        (&[], "there are no jobs\n"),
    ] {
        let said = outlast(&[&["jobs", "list", "--server", &stub.url], words].concat());
        assert_eq!((said.code, said.err.as_str()), (0, what));
    }
}

#[test]
fn a_server_that_is_not_ready_is_reached_and_says_why() {
    let body = r#"{"status":"unavailable","ready":false,"store":"disk is full",
        "reason":"disk_full"}"#;
    let stub = Stub::always(503, body);
    let said = outlast(&["health", "server", "--server", &stub.url]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(
        said.err.starts_with("error: the server is not ready: store: disk is full\nhint: free")
    );
}

#[test]
fn answer_that_is_not_from_outlast_is_a_failure() {
    let stub = Stub::always(200, "<html>");
    let said = outlast(&["jobs", "list", "--server", &stub.url]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("does not answer as an Outlast server"), "{}", said.err);
}

#[test]
fn no_server_is_exit_6_and_says_where_it_was_looked_for() {
    // Port 1 on loopback: no process listens there.
    let said = outlast_with(&["workers", "list"], &[("OUTLAST_SERVER", "127.0.0.1:1")]);
    assert_eq!((said.code, said.out.as_str()), (6, ""));
    assert!(
        said.err.starts_with("error: server http://127.0.0.1:1 cannot be reached"),
        "{}",
        said.err
    );
    assert!(said.err.contains("hint: is it running?"), "{}", said.err);
}

#[test]
fn token_from_the_environment_is_sent_and_the_flag_beats_it() {
    let stub = Stub::always(200, r#"{"data":[]}"#);
    let variables = [("OJS_URL", stub.url.as_str()), ("OJS_AUTH_TOKEN", "one")];
    outlast_with(&["jobs", "list"], &variables);
    outlast_with(&["jobs", "list", "--token", "two"], &variables);
    let tokens: Vec<_> = stub.asked().into_iter().map(|asked| asked.token.unwrap()).collect();
    assert_eq!(tokens, ["Bearer one", "Bearer two"]);
}

#[test]
fn list_is_filtered_by_the_server_and_read_page_by_page() {
    let stub = Stub::start(|asked, _| {
        let (id, next) =
            if asked.line.contains("cursor=next") { (2, "null") } else { (1, "\"next\"") };
        let page = format!(r#"{{"limit":1,"next_cursor":{next},"total":2}}"#);
        (200, format!(r#"{{"data":[{{"id":"j{id}"}}],"pagination":{page}}}"#))
    });
    let args = ["jobs", "list", "--status", "running", "--queue", "a b", "-o", "jsonl"];
    let said = outlast(&[&args[..], &["--server", &stub.url]].concat());
    assert_eq!((said.code, said.out.as_str()), (0, "{\"id\":\"j1\"}\n{\"id\":\"j2\"}\n"));
    let asked: Vec<String> = stub.asked().into_iter().map(|asked| asked.line).collect();
    let filters = "GET /api/v1/executions?status=running&queue=a+b";
    assert_eq!(asked, [format!("{filters}&limit=50"), format!("{filters}&limit=49&cursor=next")]);
}

#[test]
fn list_says_when_there_is_more() {
    let body = r#"{"data":[{"id":"j1"}],"pagination":{"limit":1,"next_cursor":"c","total":9}}"#;
    let stub = Stub::always(200, body);
    let said = outlast(&["jobs", "list", "--limit", "1", "--server", &stub.url]);
    assert_eq!(said.err, "1 of 9 shown; --limit shows more, --cursor c the next\n");
}

#[test]
fn control_characters_of_a_job_do_not_reach_the_terminal() {
    let body = r#"{"data":[{"id":"j1","action_ref":"\u001b[2Jevil\n"}]}"#;
    let stub = Stub::always(200, body);
    let said = outlast(&["jobs", "list", "--server", &stub.url]);
    assert!(said.out.contains("\\u{1b}[2Jevil\\n"), "{}", said.out);
    assert!(!said.out.contains('\u{1b}'), "{}", said.out);
}

#[test]
fn show_holds_job_and_attempts_in_one_document() {
    let attempts = r#"{"data":[{"epoch":1,"outcome":"lost","evidence":"lease over"},
        {"epoch":2,"outcome":"completed"}]}"#;
    let stub = Stub::routes(&[
        ("GET /api/v1/executions/j1/attempts", attempts),
        ("GET /api/v1/executions/j1", JOB),
    ]);
    let said = outlast(&["jobs", "show", "j1", "-o", "json", "--server", &stub.url]);
    let shown: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &shown["attempts"][0]["outcome"]), (0, &Value::from("lost")));
    let said = outlast(&["jobs", "show", "j1", "--server", &stub.url]);
    assert!(said.out.contains("2026-01-02 03:04:05Z ("), "{}", said.out);
    assert!(said.out.contains("lease over"), "{}", said.out);
}

#[test]
fn ids_cannot_lead_to_another_path() {
    let stub = Stub::always(200, JOB);
    outlast(&["jobs", "cancel", "../workers?x", "--server", &stub.url]);
    let line = "POST /api/v1/executions/..%2Fworkers%3Fx/cancel";
    assert_eq!(stub.asked().first().unwrap().line, line);
}

const ID: &str = "01a1fcae-2d50-72c9-9c67-56e57a9c8e7c";

#[test]
fn a_job_may_be_named_by_the_beginning_of_its_id() {
    let stub = Stub::start(|asked, _| match asked.line.split(['?', ' ']).collect::<Vec<_>>()[..] {
        ["GET", "/api/v1/executions", query] if query.starts_with("id=01a1&") => {
            (200, format!(r#"{{"data":[{{"id":"{ID}"}},{{"id":"01a1ffff"}}]}}"#))
        }
        ["GET", "/api/v1/executions", query] if query.starts_with("id=01a1fcae-2&") => {
            (200, format!(r#"{{"data":[{{"id":"{ID}"}}]}}"#))
        }
        ["GET", "/api/v1/executions", _] => (200, r#"{"data":[]}"#.to_owned()),
        _ => (200, format!(r#"{{"data":{{"id":"{ID}","status":"cancelled"}}}}"#)),
    });
    let ask = |id: &str| outlast(&["jobs", "cancel", id, "--server", &stub.url]);
    assert_eq!(ask("01a1fcae-2").code, 0);
    let asked = stub.asked().last().unwrap().line.clone();
    assert_eq!(asked, format!("POST /api/v1/executions/{ID}/cancel"));
    let several = ask("01a1");
    assert_eq!(several.code, 4);
    assert!(several.err.contains(ID) && several.err.contains("give more digits"));
    assert_eq!(ask("ffff").code, 3);
}

/// `--queue "$Q"` of a variable that is not set once cancelled every job there was.
#[test]
fn an_empty_filter_is_refused_before_anything_is_sent() {
    let stub = Stub::always(200, r#"{"data":[]}"#);
    for filter in ["--queue", "--status", "--action", "--worker", "--since", "--before"] {
        for verb in ["cancel", "retry", "list"] {
            let said = outlast(&["jobs", verb, filter, "", "--server", &stub.url]);
            assert_eq!(said.code, 2, "{verb} {filter}: {}", said.err);
        }
    }
    for filter in ["--type", "--queue", "--worker", "--job"] {
        assert_eq!(outlast(&["events", filter, "", "--server", &stub.url]).code, 2, "{filter}");
    }
    assert!(stub.asked().is_empty(), "{:?}", stub.asked());
}

#[test]
fn many_orders_stop_when_the_server_is_gone_and_go_on_past_a_job_that_is_refused() {
    let stub = Stub::start(move |asked, _| match asked.line.as_str() {
        line if line.contains("/a/") => {
            (409, r#"{"error":{"message":"execution a is running"}}"#.to_owned())
        }
        _ => (503, r#"{"error":{"message":"not now"}}"#.to_owned()),
    });
    let said = outlast(&["jobs", "retry", "a", "b", "c", "--server", &stub.url]);
    assert_eq!(said.code, 6, "{}", said.err);
    assert!(said.err.contains("2 of 2 refused, 0 done"), "{}", said.err);
    let asked: Vec<String> = stub.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(!asked.iter().any(|line| line.contains("/c/")), "{asked:?}");
}

#[test]
fn show_tells_what_the_server_knows() {
    let job = r#"{"data":{"id":"j1","status":"cancelled","attempt":2,"max_attempts":3,"life":1,
        "losses":1,"dead_letter":"exhausted","due":"2026-01-02T03:04:05Z"}}"#;
    let attempts = r#"{"data":[{"attempt":1,"outcome":"failed",
        "error":{"type":"exit_code","message":"exit code 3: boom"}}]}"#;
    let events = r#"{"data":[{"type":"job.cancelled","data":{"by":"token ops"}}]}"#;
    let stub = Stub::routes(&[
        ("GET /api/v1/executions/j1/attempts", attempts),
        ("GET /api/v1/executions/j1/events?type=job.cancelled", events),
        ("GET /api/v1/executions/j1", job),
    ]);
    let said = outlast(&["jobs", "show", "j1", "--server", &stub.url]);
    for part in [
        "2 of 4",
        "its attempts are used up",
        "token ops",
        "2026-01-02 03:04:05Z",
        "exit_code: exit code 3: boom",
    ] {
        assert!(said.out.contains(part), "{part} is not in {}", said.out);
    }
}

#[test]
fn every_job_is_tried_and_every_refusal_is_said() {
    let stub = Stub::start(|asked, _| match asked.line.as_str() {
        "POST /api/v1/executions/a/cancel" => {
            (409, r#"{"error":{"message":"execution a is completed"}}"#.to_owned())
        }
        "POST /api/v1/executions/c/cancel" => {
            (404, r#"{"error":{"message":"job is not known"}}"#.to_owned())
        }
        _ => (200, r#"{"data":{"id":"b","status":"cancelled"}}"#.to_owned()),
    });
    let said = outlast(&["jobs", "cancel", "a", "b", "c", "--server", &stub.url]);
    assert_eq!(said.code, 4, "{}", said.err);
    assert!(said.out.contains("cancelled"), "{}", said.out);
    for part in ["job a is completed", "c: job is not known", "2 of 3 refused, 1 done"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
}

#[test]
fn output_of_several_attempts_is_told_apart_and_ends_its_lines() {
    let logs = r#"{"data":[{"n":1,"epoch":1,"stream":"stdout","text":"hello"},
        {"n":2,"epoch":3,"stream":"stderr","text":"oh"}]}"#;
    let stub = Stub::start(move |asked, _| {
        let body = match (asked.line.contains("/logs"), asked.line.contains("after=2")) {
            (true, true) => r#"{"data":[]}"#,
            (true, false) => logs,
            (false, _) => r#"{"data":{"id":"j1","status":"completed","attempt":3}}"#,
        };
        (200, body.to_owned())
    });
    let said = outlast(&["jobs", "logs", "j1", "--server", &stub.url]);
    assert_eq!(said.out, "hello\n");
    assert_eq!(said.err, "--- attempt 1\n--- attempt 3\noh\n");
}

const WORKERS: &str = r#"{"data":[
    {"id":"old","name":"w1","status":"inactive"},{"id":"new","name":"w1","status":"active"},
    {"id":"a","name":"w2","status":"active"},{"id":"b","name":"w2","status":"active"}]}"#;

#[test]
fn worker_may_be_named_and_the_active_one_is_meant() {
    let stub = Stub::routes(&[
        ("GET /api/v1/workers", WORKERS),
        ("POST /api/v1/workers/new/drain", r#"{"data":{"id":"new","state":"draining"}}"#),
    ]);
    let said = outlast(&["workers", "drain", "w1", "--server", &stub.url]);
    assert_eq!(said.code, 0, "{}", said.err);
    let ambiguous = outlast(&["workers", "drain", "w2", "--server", &stub.url]);
    assert_eq!(ambiguous.code, 4);
    assert_eq!(ambiguous.err, "error: 2 workers are named `w2`\n  a\n  b\nhint: use the id\n");
    assert_eq!(outlast(&["workers", "drain", "w3", "--server", &stub.url]).code, 3);
}

/// The server finds the worker by the prefix, in one request.
#[test]
fn a_worker_may_be_named_by_the_beginning_of_its_id_everywhere() {
    const ID: &str = "01900000-0000-7000-8000-0000000000aa";
    let stub = Stub::start(|asked, _| {
        let worker = format!(r#"{{"id":"{ID}","name":"w1","status":"active"}}"#);
        let body = match asked.line.as_str() {
            line if line.contains("/workers?name=") => r#"{"data":[]}"#.to_owned(),
            line if line.contains("/workers?id=0190") => format!(r#"{{"data":[{worker}]}}"#),
            line if line.contains("/workers?id=") => r#"{"data":[]}"#.to_owned(),
            line if line.contains("/workers/") => format!(r#"{{"data":{worker}}}"#),
            _ => r#"{"data":[]}"#.to_owned(),
        };
        (200, body)
    });
    let ask = |args: &[&str]| outlast(&[args, &["--server", &stub.url]].concat());
    for args in [
        &["workers", "show", "01900000-0000"][..],
        &["workers", "drain", "019000000000"],
        &["jobs", "list", "--worker", "01900000-0000"],
        &["events", "--worker", "01900000-0000"],
    ] {
        let said = ask(args);
        assert_eq!(said.code, 0, "{args:?}: {}", said.err);
        let last = stub.asked().pop().unwrap().line;
        assert!(last.contains(ID), "{args:?}: {last}");
    }
    assert_eq!(ask(&["workers", "show", "shell-1"]).code, 3);
    assert_eq!(ask(&["workers", "show", "beef"]).code, 3);
}

#[test]
fn workers_of_a_large_fleet_come_in_pages_and_as_many_as_are_asked_for() {
    let stub = Stub::start(|asked, _| {
        if asked.line.contains("/workers/orders") {
            return (200, r#"{"data":[]}"#.to_owned());
        }
        let (id, next) =
            if asked.line.contains("cursor=c1") { ("b", "null") } else { ("a", "\"c1\"") };
        let pages = format!(r#"{{"limit":1,"next_cursor":{next},"total":2}}"#);
        (200, format!(r#"{{"data":[{{"id":"{id}","name":"w"}}],"pagination":{pages}}}"#))
    });
    let said = outlast(&["workers", "list", "--server", &stub.url]);
    assert_eq!(said.out.lines().count(), 3, "{}", said.out);
    assert_eq!(said.err, "");
    let said = outlast(&["workers", "list", "--limit", "1", "--server", &stub.url]);
    assert_eq!(said.out.lines().count(), 2, "{}", said.out);
    assert_eq!(said.err, "1 of 2 shown; --limit shows more\n");
}

#[test]
fn queue_is_paused_and_shown_as_paused() {
    let paused = r#"{"queue":{"name":"mail","paused":true}}"#;
    let stub = Stub::routes(&[
        ("POST /ojs/v1/queues/mial/pause", paused),
        ("POST /ojs/v1/queues/mail/pause", paused),
        ("GET /ojs/v1/queues", r#"{"queues":[{"name":"default"},{"name":"mail"}]}"#),
    ]);
    let slip = outlast(&["queues", "pause", "mial", "--server", &stub.url]);
    assert_eq!(slip.code, 3);
    assert!(
        slip.err.contains("there is no queue `mial`\nhint: did you mean `mail`?"),
        "{}",
        slip.err
    );
    let meant = ["queues", "pause", "mial", "--create", "--server", &stub.url];
    assert_eq!(outlast(&meant).code, 0);
    let said = outlast(&["queues", "pause", "mail", "--server", &stub.url]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.lines().nth(1).unwrap().starts_with("mail   paused"), "{}", said.out);
}

#[test]
fn health_of_a_server_is_an_exit_code() {
    let ready = Stub::always(200, r#"{"status":"ready","ready":true}"#);
    let said = outlast(&["health", "--server", &ready.url]);
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "", ""));
    assert_eq!(ready.asked()[0].line, "GET /health/ready");
    let full = Stub::always(503, r#"{"status":"unavailable","ready":false}"#);
    assert_ne!(outlast(&["health", "server", "--server", &full.url]).code, 0);
    assert_eq!(outlast(&["health", "--server", "http://127.0.0.1:1"]).code, 6);
}

#[test]
fn health_of_a_worker_that_does_not_run_here_is_bad_whatever_a_server_says() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().display().to_string();
    let environment = [("OUTLAST_WORKER__NAME", "a"), ("OUTLAST_WORKER__WORK_DIR", &*folder)];
    let said = outlast_with(&["health", "worker"], &environment);
    assert_eq!(said.code, 1);
    assert!(said.err.starts_with("error: no worker a runs on this host"), "{}", said.err);
}

// The list ended there, and an order to a pool missed the workers behind it.
#[test]
fn an_empty_page_of_workers_is_not_the_last_if_it_has_a_cursor() {
    let stub = Stub::start(|asked, _| {
        let page = match asked.line.contains("cursor=next") {
            true => r#"{"data":[{"id":"1","name":"behind","state":"running"}],"pagination":{}}"#,
            false => r#"{"data":[],"pagination":{"next_cursor":"next"}}"#,
        };
        (200, page.to_owned())
    });
    let said = outlast(&["workers", "list", "--server", &stub.url]);
    assert!(said.out.contains("behind"), "{}", said.out);
}

#[test]
fn dead_letters_are_read_page_by_page_and_their_number_is_reported() {
    let stub = Stub::start(|asked, _| {
        let (id, next) =
            if asked.line.contains("cursor=next") { (2, "\"last\"") } else { (1, "\"next\"") };
        let page = format!(r#"{{"next_cursor":{next},"total":9}}"#);
        (200, format!(r#"{{"jobs":[{{"id":"j{id}"}}],"pagination":{page}}}"#))
    });
    let args = ["dead-letters", "list", "--limit", "2", "-o", "jsonl", "--server", &stub.url];
    let said = outlast(&args);
    assert_eq!((said.code, said.out.as_str()), (0, "{\"id\":\"j1\"}\n{\"id\":\"j2\"}\n"));
    assert_eq!(said.err, "2 of 9 shown; --limit shows more\n");
}

/// Nothing of this reaches a server.
#[test]
fn a_wrong_value_is_named_with_what_would_be_right() {
    for (args, message, right) in [
        (&["--retry", "often"][..], "--retry is `often`", "max_attempts=5"),
        (&["--delay", "1000000d"], "--delay is `1000000d`", "at most a hundred years"),
        (&["--at", "tomorrow"], "--at is `tomorrow`", "--delay 2h"),
        (&["-p", "message"], "parameter `message` has no value", "message=VALUE"),
        (&["-p", "=x"], "parameter `=x` has no name", "name=value"),
    ] {
        let said = outlast(&[&["run", "core.echo"], args].concat());
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(said.err.contains(message) && said.err.contains(right), "{}", said.err);
    }
    let said = outlast(&["worker", "--queues", "A B"]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("lower-case"), "{}", said.err);
}

#[test]
fn a_field_that_a_server_refuses_is_named_by_the_flag_that_sets_it() {
    let refusal = r#"{"error":{"code":"invalid_request","details":{"field":"timeout"},
        "message":"field `timeout` must be above 0","hint":"correct it"}}"#;
    let stub = Stub::always(400, refusal);
    let said = outlast(&["run", "core.noop", "--time-limit", "0", "--server", &stub.url]);
    assert_eq!((said.code, said.err.as_str()), (2, "error: --time-limit must be above 0\n"));
    let refusal = refusal.replace("timeout", "created_after");
    let stub = Stub::always(400, &refusal);
    let said = outlast(&["jobs", "list", "--since", "x", "--server", &stub.url]);
    assert_eq!((said.code, said.err.as_str()), (2, "error: --since must be above 0\n"));
    for (field, words, flag) in [
        ("delay", &["run", "a.b", "--at", "2030-01-31T12:00:00Z"][..], "--at"),
        ("priority", &["run", "a.b", "--priority", "1"], "--priority"),
        ("delay_ms", &["run", "a.b", "--any-type", "--delay", "1"], "--delay"),
        ("scheduled_at", &["run", "a.b", "--any-type", "--at", "2030-01-31T12:00:00Z"], "--at"),
        ("timeout_ms", &["run", "a.b", "--any-type", "--time-limit", "1"], "--time-limit"),
        ("type", &["run", "A", "--any-type"], "ACTION"),
        ("queue", &["run", "a.b", "--any-type", "--queue", "Q"], "--queue"),
        ("type", &["events", "--type", "x"], "--type"),
        ("type", &["events", "-f", "--type", "x"], "--type"),
        ("cursor", &["events", "--after", "x"], "--after"),
        ("cursor", &["events", "-f", "--after", "x"], "--after"),
        ("limit", &["dead-letters", "list", "--limit", "0"], "--limit"),
    ] {
        let stub = Stub::always(400, &refusal.replace("created_after", field));
        let said = outlast(&[words, &["--server", &stub.url]].concat());
        let message = format!("error: {flag} must be above 0\n");
        assert!(said.code == 2 && said.err.contains(&message), "{words:?}: {}", said.err);
    }
}
