//! `outlast token`.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Hashes what comes through stdin: exit code, stdout, stderr.
fn hash(text: &[u8]) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_outlast"))
        .args(["token", "hash"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It reads no more than it may: the rest then meets a closed pipe.
    let _written = child.stdin.take().unwrap().write_all(text);
    let ended = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

/// The hash of its beginning was once printed: a token that no server would accept.
#[test]
fn a_token_that_is_too_long_is_refused_not_cut() {
    let longest = vec![b'a'; 65_536];
    let (code, out, err) = hash(&longest);
    assert_eq!((code, out.len()), (Some(0), 65), "{err}");
    for text in [[&longest[..], b"a"].concat(), vec![b' '; 1024 * 1024]] {
        let (code, out, err) = hash(&text);
        assert_eq!((code, out.as_str()), (Some(2), ""));
        assert!(err.contains("it is longer than 65536 bytes"), "{err}");
    }
}
