//! Who is signed in with a browser, and ending that.

use outlast_dashboard::pages::sheet::{Cell, Form, Row, Section, Table};
use outlast_dashboard::{Flash, Place};
use outlast_store::browser_session::BrowserSession;
use uuid::Uuid;

use super::jobs::short;
use super::sheet::{self, Head};
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::sessions;

/// How many are on a page.
const SESSIONS: u32 = 50;
/// Longest name of a browser, in characters.
const AGENT_MAX: usize = 120;

pub(super) async fn page(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let before = req.query("cursor").and_then(|text| Uuid::try_parse(&text).ok());
    let (found, next) = sessions::page(req, before, SESSIONS).await?;
    let head = Head::new(Place::Elsewhere, "Sessions", "outlast sessions list");
    let mut frame = head.saying(said).frame(req).await;
    frame.is_live = true;
    let words = if sessions::own(req).is_none() {
        "Browsers that are signed in, with any token. Each also ends twelve hours after its last request, and \
         once its token is gone."
    } else {
        "Browsers that are signed in with your token. Each also ends twelve hours after its last request, and \
         once the token is gone."
    };
    let table = Table {
        name: "sessions",
        caption: "The latest ones first.".to_owned(),
        columns: vec!["Token", "Role", "From", "Browser", "Since", "Last used", "Until", ""],
        rows: found.iter().map(|session| row(req, session)).collect(),
        empty: "No browser is signed in.",
        grows: None,
        next: next.map(|id| (format!("sessions?cursor={id}"), "Older sessions")),
    };
    Ok(sheet::page(frame, vec![Section::Note(words.to_owned()), Section::Table(table)]))
}

fn row(req: &ApiRequest, session: &BrowserSession) -> Row {
    let access = &req.app.engine.settings().access;
    let role = access.of_session(&session.token).map(|token| token.role.as_str());
    let is_this = req.session().is_some_and(|own| own.session.id == session.id);
    let name = &session.name;
    let (token, words) = if is_this {
        (format!("{name} (this browser)"), "End this session? You are signed out then.".to_owned())
    } else {
        (name.clone(), format!("End this session of {name}?"))
    };
    let id = session.id;
    Row {
        key: sheet::key(id),
        testid: Some("session".to_owned()),
        cells: vec![
            Cell::Text(token),
            Cell::text(role),
            Cell::Text(session.address.clone()),
            Cell::Text(short(&session.agent, AGENT_MAX)),
            Cell::At(session.created),
            Cell::LiveAt(session.used),
            Cell::LiveAt(session.expires),
            Cell::Buttons(vec![
                Form::button(&format!("end-{id}"), format!("sessions/{id}/end"), "End").asks(words),
            ]),
        ],
    }
}
