//! The pages. Each is a value with a template of the same name.

mod error;
pub mod graph;
mod job;
mod jobs;
pub mod sheet;
mod sign_in;

pub use error::ErrorPage;
pub use job::{AttemptRow, Fact, JobPage, OutputLine, Text};
pub use jobs::{BulkLink, Filter, JobRow, JobsPage, StateCount};
pub use sign_in::SignInPage;

use askama::Template;

/// Writes a page. A template fails only if a value in it does, and none does.
#[must_use]
pub fn html(page: &impl Template) -> String {
    page.render().unwrap_or_default()
}
