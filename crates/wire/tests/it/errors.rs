//! The error catalogue.

use std::collections::BTreeSet;

use outlast_wire::ojs::error::{Code, ErrorBody};

#[test]
fn every_error_tells_code_message_retryable_hint_and_where_to_read_on() {
    for code in Code::ALL {
        let body = ErrorBody {
            code,
            message: "a \"b\"",
            details: None,
            request_id: "r",
            hint: code.hint(),
        };
        let document: serde_json::Value =
            serde_json::from_slice(&body.document()).expect("a document");
        let error = &document["error"];
        assert_eq!(error["code"], code.as_str());
        assert_eq!(error["message"], "a \"b\"");
        assert_eq!(error["retryable"], code.is_retryable());
        assert_eq!(error["request_id"], "r");
        assert!(error["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{code:?}");
        assert!(error["docs_url"].as_str().is_some_and(|url| url.starts_with("https://")));
    }
}

#[test]
fn codes_differ() {
    let codes: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(codes.len(), Code::ALL.len());
}
