//! `outlast events --follow` over connections that break.

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
