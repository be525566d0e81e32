use askama::Template;

use crate::Frame;

/// Says why there is no page.
#[derive(Debug, Template)]
#[template(path = "error.html")]
pub struct ErrorPage {
    /// What stands around it.
    pub frame: Frame,
    /// What went wrong.
    pub message: String,
    /// What helps.
    pub hint: Option<String>,
    /// The way back to the page on which something was tried.
    pub back: Option<String>,
    /// The page that signs in and comes back, if that helps.
    pub sign_in: Option<String>,
}
