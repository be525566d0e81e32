//! Colours of states, so that what went wrong stands out among what did not.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the user wants colours.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Says whether terminals get colours. Without it they get none.
pub fn use_colour(wanted: bool) {
    WANTED.store(wanted, Ordering::Relaxed);
}

pub(super) fn is_used() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// Names of columns and fields that say how something is.
const NAMES: &[&str] = &["status", "state", "outcome", "verdict"];
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

/// A cell as a terminal shows it, in the colour of its word.
pub(super) fn painted(is_coloured: bool, name: &str, cell: &str) -> String {
    let says_state = || NAMES.iter().any(|known| name.eq_ignore_ascii_case(known));
    match colour(cell).filter(|_| is_coloured && says_state()) {
        Some(colour) => format!("\x1b[{colour}m{cell}\x1b[0m"),
        None => cell.to_owned(),
    }
}

fn colour(word: &str) -> Option<&'static str> {
    // `killed (frozen)` is as bad as `killed`.
    match word.split_whitespace().next().unwrap_or_default() {
        "failed" | "timeout" | "abandoned" | "discarded" | "lost" | "lapsed" | "killed"
        | "stranded" | "fail" => Some(RED),
        "suspect" | "quiet" | "draining" | "cancelled" | "interrupted" | "retryable" | "paused"
        | "undelivered" | "warn" => Some(YELLOW),
        "completed" | "running" | "active" | "ok" => Some(GREEN),
        _ => None,
    }
}
