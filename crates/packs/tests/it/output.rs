//! From standard output to a result.

use serde_json::{Value, json};

use crate::fixture::with_action;

fn parsed(format: &str, stdout: &[u8]) -> Result<Value, String> {
    with_action(&format!("output_format: {format}\n"), |action| action.parse_output(stdout))
}

#[test]
fn text_is_kept_but_for_its_last_newline() {
    assert_eq!(parsed("text", b"a\n\nb\n\n").unwrap(), json!({"stdout": "a\n\nb\n"}));
    assert_eq!(parsed("text", b"").unwrap(), json!({"stdout": ""}));
    assert_eq!(parsed("text", b"\xffx").unwrap(), json!({"stdout": "\u{fffd}x"}));
}

#[test]
fn json_is_the_document_also_when_log_lines_come_first() {
    assert_eq!(parsed("json", b"\n{\n \"a\": [1]\n}\n").unwrap(), json!({"a": [1]}));
    assert_eq!(parsed("json", b"starting\ndone\n{\"a\": 1}\n").unwrap(), json!({"a": 1}));
    assert_eq!(parsed("json", b" \n").unwrap(), Value::Null);
}

#[test]
fn yaml_is_the_document() {
    assert_eq!(parsed("yaml", b"a: 1\nb: [x]\n").unwrap(), json!({"a": 1, "b": ["x"]}));
    assert_eq!(parsed("yaml", b"").unwrap(), Value::Null);
}

#[test]
fn jsonl_is_the_list_of_documents_without_log_lines() {
    assert_eq!(parsed("jsonl", b"{\"a\":1}\n\nlog\n2\n").unwrap(), json!([{"a": 1}, 2]));
    assert_eq!(parsed("jsonl", b"").unwrap(), json!([]));
}

#[test]
fn output_in_another_format_says_where_it_goes_wrong() {
    insta::assert_snapshot!(parsed("json", b"{\"a\": 1,}\n").unwrap_err());
    insta::assert_snapshot!(parsed("jsonl", b"\nnope\n").unwrap_err());
    insta::assert_snapshot!(parsed("yaml", b"a: 1\nb: [x\n").unwrap_err());
}

fn result(format: &str, stdout: &[u8]) -> Value {
    let format = format!("output_format: {format}\n");
    let result = with_action(&format, |action| action.result(stdout));
    serde_json::from_str(&result).unwrap()
}

#[test]
fn numbers_of_a_result_stay_as_they_were_printed() {
    let kept = |format: &str, stdout: &[u8]| {
        let format = format!("output_format: {format}\n");
        with_action(&format, |action| action.result(stdout))
    };
    let document = r#"{"n":123456789012345678901,"d":0.12345678901234567891}"#;
    assert_eq!(kept("json", format!("{document}\n").as_bytes()), document);
    assert_eq!(kept("json", format!("a log line\n{document}\n").as_bytes()), document);
    assert_eq!(kept("json", b"{\n  \"a b\": [1.50, 2]\n}\n"), r#"{"a b":[1.50,2]}"#);
    let lines = format!("{document}\nno JSON\n\n 1.50 \n");
    assert_eq!(kept("jsonl", lines.as_bytes()), format!("[{document},1.50]"));
}

#[test]
fn output_that_clients_could_not_read_as_json_is_kept_as_text() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(result("json", nested(64).as_bytes()).is_array());
    for (format, levels) in [("json", 65), ("json", 127), ("json", 200), ("jsonl", 64)] {
        let printed = nested(levels);
        let result = result(format, printed.as_bytes());
        assert_eq!(result["stdout"], printed, "{format} {levels}");
        let problem = result["output_error"].as_str().unwrap();
        assert!(problem.starts_with("output is n"), "{format} {levels}: {problem}");
    }
    for unreadable in [r#"["\ud800"]"#, "[1e400]"] {
        assert_eq!(result("json", unreadable.as_bytes())["stdout"], unreadable);
    }
}

#[test]
fn a_result_keeps_output_that_broke_its_promise_and_says_so() {
    let result = result("json", b"all well\n");
    assert_eq!(result["stdout"], "all well");
    assert!(result["output_error"].as_str().unwrap().starts_with("output is not JSON"));
}

#[test]
fn yaml_that_explodes_is_refused() {
    let mut lines = vec!["a0: &a0 [x, x, x, x, x, x, x, x, x, x]".to_owned()];
    for n in 1..10 {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        lines.push(format!("a{n}: &a{n} [{aliases}]"));
    }
    let bomb = lines.join("\n");
    assert!(parsed("yaml", bomb.as_bytes()).unwrap_err().starts_with("output is not YAML"));
}
