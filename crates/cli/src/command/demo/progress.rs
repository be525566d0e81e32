//! Progress: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use outlast_cli_core::output::say;

/// Without a terminal, the number of lines that are printed.
const STEPS: usize = 10;

/// How far the jobs are.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    total: usize,
    printed: usize,
}

impl Progress {
    pub(super) fn new(total: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| bar(total));
        Self { bar, total, printed: 0 }
    }

    /// This many jobs are done.
    pub(super) fn set(&mut self, done: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(u64::try_from(done).unwrap_or(u64::MAX));
            return;
        }
        let step = done * STEPS / self.total.max(1);
        if step > self.printed {
            self.printed = step;
            say(&format!("{done} of {} jobs done\n", self.total));
        }
    }

    /// Something happened that is worth a line.
    pub(super) fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => say(&format!("{text}\n")),
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }
}

fn bar(total: usize) -> ProgressBar {
    let length = u64::try_from(total).unwrap_or(u64::MAX);
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    match ProgressStyle::with_template("{bar:40} {pos}/{len} jobs done, {elapsed}") {
        Ok(style) => bar.with_style(style),
        Err(_template) => bar,
    }
}
