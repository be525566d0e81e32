//! Orders to all workers that are chosen, in a request: `{"order": "drain", "selector": "pool=gpu"}`.

use outlast_core::selector::Selector;
use outlast_core::worker::order::WorkerOrder;

use crate::fault::Fault;
use crate::json::fields::{flag, given, known, text};
use crate::placement;

const KNOWN: &[&str] = &["order", "selector", "all"];

const ORDER: &str = "must be `quiet`, `resume` or `drain`";

/// Reads what is ordered, and to whom: a selector that asks for nothing is every worker.
///
/// # Errors
/// Returns what is wrong with it, and what would be right.
pub fn read(body: &[u8]) -> Result<(WorkerOrder, Selector), Fault> {
    let fields = known(KNOWN, body)?;
    let order = text(&fields, "order")?.and_then(WorkerOrder::parse);
    let order = order.ok_or_else(|| Fault::field("order", ORDER))?;
    let selector = match given(&fields, "selector") {
        Some(value) => placement::read("selector", value.as_str())?,
        None => Selector::default(),
    };
    match (flag(&fields, "all")?, selector.is_empty()) {
        (Some(true), true) | (None | Some(false), false) => Ok((order, selector)),
        (Some(true), false) => {
            let problem = "and `selector` are both given: an order is to all workers or to some";
            Err(Fault::field("all", problem))
        }
        (None | Some(false), true) => {
            let problem = "asks for nothing; `\"all\": true` is an order to all workers, \
                           `pool=gpu, !spot` to some";
            Err(Fault::field("selector", problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_says_what_and_to_whom() {
        let read = |body: &str| read(body.as_bytes()).map(|(order, to)| (order, to.to_string()));
        let drain = r#"{"order": "drain", "selector": "!spot, pool=gpu"}"#;
        assert_eq!(read(drain), Ok((WorkerOrder::Drain, "pool=gpu,!spot".into())));
        let resume = r#"{"order": "resume", "all": true}"#;
        assert_eq!(read(resume), Ok((WorkerOrder::Resume, String::new())));
        for (body, problem) in [
            (r#"{"selector": "a"}"#, ORDER),
            (r#"{"order": "stop", "selector": "a"}"#, ORDER),
            (r#"{"order": "drain"}"#, "asks for nothing"),
            (r#"{"order": "drain", "selector": " ", "all": false}"#, "asks for nothing"),
            (r#"{"order": "drain", "selector": "a", "all": true}"#, "are both given"),
            (r#"{"order": "drain", "selector": "a b"}"#, "is no selector"),
            (r#"{"order": "drain", "selector": 7}"#, "must be a text"),
            (r#"{"order": "drain", "all": 1}"#, "`all`"),
            (r#"{"order": "drain", "pool": "gpu"}"#, "pool"),
        ] {
            let fault = read(body).unwrap_err().to_string();
            assert!(fault.contains(problem), "{body}: {fault}");
        }
    }
}
