use askama::Template;

use crate::Frame;

/// Asks for a token.
#[derive(Debug, Template)]
#[template(path = "sign_in.html")]
pub struct SignInPage {
    /// What stands around it.
    pub frame: Frame,
    /// Why the token before was not taken.
    pub refused: Option<String>,
    /// The page that is shown afterwards, from the root.
    pub next: String,
}
