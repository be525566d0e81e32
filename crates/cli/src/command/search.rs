//! Searches over many pages, of which most may be empty: the server looks at a part of the store for
//! each.

use outlast_cli_core::output::say;

/// Most empty pages in a row before a search ends. A page looks at thousands of jobs or events.
pub(crate) const EMPTY_MAX: u32 = 20;

/// Says that a search ended early, and how it goes on.
pub(crate) fn say_goes_on(found: usize, flag: &str, cursor: &str) {
    say(&format!("{found} found so far, and none for long; {flag} {cursor} searches on\n"));
}
