//! The page that takes a token, and the way out.

use axum::extract::Request;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use outlast_dashboard::pages::{SignInPage, html as written};

use super::PAGES;
use super::response::{self, Asking};
use crate::access::SignInRefusal;
use crate::http::App;
use crate::http::error::ApiError;
use crate::http::request::{ApiRequest, decoded};
use crate::http::sign_in::{self, Outcome};

/// Longest form that signs in, in bytes: who sends it is not known.
const FORM_MAX: usize = 16 * 1024;
/// Longest address of a page that is shown after signing in.
const NEXT_MAX: usize = 2_000;

pub(super) async fn show(app: App, request: Request) -> Response {
    let asking = Asking::of(&request);
    let req = ApiRequest::new(app.clone(), request);
    let next = req.query("next").unwrap_or_default();
    // Nothing to do for who is in already, or needs no token.
    if !app.engine.settings().access.has_tokens() {
        return response::to(&way(&next));
    }
    match req.signed_in().await {
        Ok(req) if req.session().is_some() => response::to(&way(&next)),
        Ok(_) => page(&app, None, next, StatusCode::OK),
        Err(error) => asking.refused(&app, error),
    }
}

pub(super) async fn sign_in(app: App, request: Request) -> Response {
    let asking = Asking::of(&request);
    match try_sign_in(&app, request).await {
        Ok(response) => response,
        Err(error) => asking.refused(&app, error),
    }
}

async fn try_sign_in(app: &App, request: Request) -> Result<Response, ApiError> {
    let mut req = ApiRequest::new(app.clone(), request).of_own_page()?;
    let fields = req.fields_up_to(FORM_MAX).await?;
    let field = |name: &str| {
        let found = fields.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let next = field("next");
    let (refused, status, wait) = match sign_in::sign_in(app, req.parts(), &field("token")).await? {
        Outcome::SignedIn(cookie) => {
            let mut response = response::to(&way(&next));
            response.headers_mut().extend(cookie.map(|it| (header::SET_COOKIE, it)));
            return Ok(response);
        }
        Outcome::Refused(SignInRefusal::Unknown) => {
            (SignInRefusal::Unknown.to_string(), StatusCode::UNAUTHORIZED, None)
        }
        Outcome::Refused(refusal) => (refusal.to_string(), StatusCode::FORBIDDEN, None),
        Outcome::TooMany(wait) => {
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            let words =
                format!("too many wrong tokens came from this address: try again in {seconds} s");
            (words, StatusCode::TOO_MANY_REQUESTS, Some(seconds))
        }
    };
    let mut response = page(app, Some(format!("Not signed in: {refused}.")), next, status);
    if status == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
    }
    if let Some(seconds) = wait {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    Ok(response)
}

pub(super) async fn sign_out(app: App, request: Request) -> Response {
    let asking = Asking::of(&request);
    let req = match ApiRequest::new(app.clone(), request).of_own_page() {
        Ok(req) => req,
        Err(error) => return asking.refused(&app, error),
    };
    match sign_in::sign_out(&app, req.parts()).await {
        Ok(cookies) => {
            let mut response = response::to("login");
            for cookie in cookies {
                response.headers_mut().append(header::SET_COOKIE, cookie);
            }
            response
        }
        Err(error) => asking.refused(&app, error),
    }
}

fn page(app: &App, refused: Option<String>, next: String, status: StatusCode) -> Response {
    let frame = response::bare(app, "Sign in", 0);
    response::html(written(&SignInPage { frame, refused, next }), status)
}

/// Returns the way from the page that signs in to the one that was asked for: a page of this dashboard,
/// whatever the text says.
fn way(next: &str) -> String {
    format!("./{}", if is_page(next) { next } else { "" })
}

fn is_page(next: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%/?=&+,:@!$'()*;".contains(&byte);
    if next.len() > NEXT_MAX || !next.bytes().all(is_plain) {
        return false;
    }
    let path = next.split('?').next().unwrap_or_default();
    let parts: Vec<String> = path.split('/').map(decoded).collect();
    // Browsers climb by encoded dots too.
    let stays = |part: &String| !part.is_empty() && part != "." && part != "..";
    let first = parts.first().map(String::as_str).unwrap_or_default();
    let known = |page: &&str| page.split('/').nth(1) == Some(first);
    path.is_empty() || (parts.iter().all(stays) && (PAGES.iter().any(known) || first == "search"))
}

#[cfg(test)]
mod tests {
    use super::way;

    #[test]
    fn pages_of_the_dashboard_come_after_signing_in() {
        for page in ["", "jobs", "jobs/0198c0de-71f3", "jobs?status=failed,timeout&cursor=c%2F1"] {
            assert_eq!(way(page), format!("./{page}"));
        }
        assert_eq!(way("queues/a%2Fb"), "./queues/a%2Fb");
    }

    #[test]
    fn nothing_else_does() {
        for elsewhere in [
            "//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "/jobs",
            "https://evil.example",
            "https:evil.example",
            "javascript:alert(1)",
            "jobs:evil",
            "%2F%2Fevil.example",
            "%5C%5Cevil.example",
            "%252F%252Fevil.example",
            "jobs/../../evil",
            "jobs/%2e%2e/%2E%2e/evil",
            "jobs//evil.example",
            "../evil",
            "jobs\r\nSet-Cookie: a=b",
            "jobs\tx",
            " jobs",
            "api/v1/executions",
            "login?next=jobs",
            "logout",
            "jobs#x",
            "żółw",
        ] {
            assert_eq!(way(elsewhere), "./", "{elsewhere}");
        }
        assert_eq!(way(&format!("jobs?{}", "x".repeat(3_000))), "./");
    }
}
