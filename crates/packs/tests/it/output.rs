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

#[test]
fn a_result_keeps_output_that_broke_its_promise_and_says_so() {
    let result = with_action("output_format: json\n", |action| action.result(b"all well\n"));
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
