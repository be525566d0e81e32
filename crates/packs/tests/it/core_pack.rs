//! Every built-in action, run for real.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use outlast_packs::PackSet;
use serde_json::{Value, json};

use crate::fixture::{Ran, run, run_with};

/// Everything that is awkward in a shell, in JSON or in a terminal.
const AWKWARD: &str = "it's \"quoted\" \\ back\\\\slash \\n $HOME `id` $(id) 'x'\n second\tline\n\n\
                       é ☃ 🦀 \u{7f} \u{85} = a='b' -n %s ; & | * ? ~ # !";

fn core(reference: &str, parameters: &Value) -> Ran {
    run(PackSet::embedded_core().unwrap().get(reference).unwrap(), parameters)
}

#[test]
fn core_pack_has_its_promised_actions_and_no_notes() {
    let set = PackSet::embedded_core().unwrap();
    let names: Vec<&str> = set.actions().map(|action| action.reference.as_str()).collect();
    assert_eq!(
        names,
        [
            "core.echo",
            "core.echo_node",
            "core.echo_python",
            "core.fail",
            "core.http_request",
            "core.noop",
            "core.sleep",
        ]
    );
    assert_eq!(set.packs().flat_map(|pack| pack.notes()).next(), None);
    assert!(set.actions().all(|action| action.enabled && action.pack == "core"));
}

#[test]
fn echo_prints_awkward_text_unchanged_in_every_shell() {
    let set = PackSet::embedded_core().unwrap();
    let echo = set.get("core.echo").unwrap();
    for text in [AWKWARD, "", "'", "''", "'\\''", "\\", "plain", "\n", "message='x'", "*"] {
        for shell in ["/bin/sh", "bash"] {
            let complete = echo.check(&json!({"message": text})).unwrap();
            let ran = run_with(echo, &complete, shell);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            assert_eq!(echo.parse_output(&ran.stdout).unwrap(), json!({"stdout": text}));
        }
    }
}

#[test]
fn echo_carries_a_message_as_long_as_a_request_may_be() {
    let text = "it's long ".repeat(100_000);
    let ran = core("core.echo", &json!({"message": text}));
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), format!("{text}\n"));
}

#[test]
fn other_parameters_cannot_change_how_a_shell_action_runs() {
    let extra = json!({
        "message": "hi", "path": "/nowhere", "parameter_message": "x",
        "name": "message", "nested": {"message": "y", "a b; id": 1},
    });
    let ran = core("core.echo", &extra);
    assert_eq!((ran.code, ran.stdout.as_slice()), (Some(0), b"hi\n".as_slice()), "{ran:?}");
    let set = PackSet::embedded_core().unwrap();
    for name in ["PATH", "IFS"] {
        let steering = json!({"message": "hi", name: "/nowhere"});
        let refused = set.get("core.echo").unwrap().check_again(&steering).unwrap_err();
        assert_eq!(refused[0].path, format!("/{name}"));
    }
}

#[test]
fn sleep_takes_fractions_of_a_second_and_refuses_what_is_no_time() {
    let ran = core("core.sleep", &json!({"duration": 0.01}));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "sleeping for 0.01 seconds\n");
    let set = PackSet::embedded_core().unwrap();
    let sleep = set.get("core.sleep").unwrap();
    for bad in [json!({}), json!({"duration": "long"}), json!({"duration": -1})] {
        assert_eq!(sleep.check(&bad).unwrap_err()[0].path, "/duration", "{bad}");
    }
}

#[test]
fn noop_succeeds_whatever_it_is_given() {
    for parameters in [Value::Null, json!({}), json!({"n": 7, "text": "it's"})] {
        let ran = core("core.noop", &parameters);
        assert_eq!((ran.code, ran.stdout.len()), (Some(0), 0), "{ran:?}");
    }
}

#[test]
fn fail_ends_with_the_message_and_code_it_was_given() {
    let ran = core("core.fail", &json!({"message": AWKWARD, "exit_code": 42}));
    assert_eq!((ran.code, ran.stderr), (Some(42), format!("{AWKWARD}\n")));
    let ran = core("core.fail", &Value::Null);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), "failed as asked\n"));
}

#[test]
fn echo_answers_from_python_and_from_node() {
    let set = PackSet::embedded_core().unwrap();
    for reference in ["core.echo_python", "core.echo_node"] {
        let ran = core(reference, &json!({"message": AWKWARD}));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let result = set.get(reference).unwrap().parse_output(&ran.stdout).unwrap();
        assert_eq!(result, json!({"message": AWKWARD}), "{reference}");
    }
}

/// Answers one request with `response` and hands over what was asked.
fn serve_once(response: &'static str) -> (SocketAddr, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut asked = String::new();
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            asked.push_str(&line);
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        asked.push_str(std::str::from_utf8(&body).unwrap());
        stream.write_all(response.as_bytes()).unwrap();
        asked
    });
    (address, server)
}

#[test]
fn http_request_sends_what_it_is_told_and_answers_with_status_headers_and_body() {
    let (address, server) = serve_once(
        "HTTP/1.1 201 Created\r\nX-Answer: yes\r\nContent-Length: 7\r\nConnection: close\r\n\r\ngr\u{fc}\u{df}e",
    );
    let ran = core(
        "core.http_request",
        &json!({
            "url": format!("http://{address}/path?q=1"), "method": "POST",
            "headers": {"X-Question": "why"}, "body": {"a": "b'c"}, "auth_token": "t0ken",
        }),
    );
    let answer: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((ran.code, &answer["status_code"]), (Some(0), &json!(201)), "{ran:?}");
    assert_eq!(answer["headers"]["x-answer"], "yes");
    assert_eq!(answer["body"], "gr\u{fc}\u{df}e");
    let asked = server.join().unwrap();
    assert!(asked.starts_with("POST /path?q=1 HTTP/1.1\r\n"), "{asked}");
    for part in ["X-Question: why", "Authorization: Bearer t0ken", "application/json"] {
        assert!(asked.contains(part), "{part} in {asked}");
    }
    assert!(asked.ends_with(r#"{"a": "b'c"}"#), "{asked}");
}

#[test]
fn http_request_fails_on_an_error_status_but_still_tells_what_came_back() {
    let (address, server) =
        serve_once("HTTP/1.1 503 Busy\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlater");
    let ran = core("core.http_request", &json!({"url": format!("http://{address}/")}));
    let answer: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(ran.code, Some(1));
    assert_eq!((&answer["status_code"], &answer["body"]), (&json!(503), &json!("later")));
    assert!(ran.stderr.contains("answered 503"), "{}", ran.stderr);
    assert!(server.join().unwrap().starts_with("GET / HTTP/1.1"));
}

#[test]
fn http_request_gives_up_on_a_server_that_never_answers() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let ran = core("core.http_request", &json!({"url": url, "timeout": 0.2}));
    let answer: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((ran.code, &answer["status_code"]), (Some(1), &json!(0)), "{ran:?}");
    assert!(ran.stderr.contains("no answer from"), "{}", ran.stderr);
}

#[test]
fn http_request_reads_no_files_not_even_through_a_redirect() {
    let set = PackSet::embedded_core().unwrap();
    let action = set.get("core.http_request").unwrap();
    let refused = action.check(&json!({"url": "file:///etc/passwd"})).unwrap_err();
    assert_eq!(refused[0].path, "/url");
    let (address, server) = serve_once(
        "HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n",
    );
    let ran = core("core.http_request", &json!({"url": format!("http://{address}/")}));
    assert_ne!(ran.code, Some(0));
    assert!(!String::from_utf8_lossy(&ran.stdout).contains("root:"), "{ran:?}");
    server.join().unwrap();
}
