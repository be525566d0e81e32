//! Sessions of browsers: list, and end. An administrator has all of them, everyone else their own: those
//! of their token.

use outlast_store::browser_session::{BrowserSession, EndSessions, SessionQuery, WhichSessions};
use outlast_store::idempotency::Fingerprint;
use outlast_wire::Fault;
use outlast_wire::json::Object;
use outlast_wire::ojs::error::Code;
use uuid::Uuid;

use super::cursor;
use super::error::{ApiError, Missing};
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::route::{Routes, delete, get};
use super::schema::Schema;
use super::sign_in;
use crate::access::Scope;

const PAGE: &[(&str, &str)] = &[
    ("limit", "How many, 50 by default and 1,000 at most"),
    ("cursor", "`next_cursor` of the page before"),
];

pub(super) fn routes() -> Routes {
    Routes::new()
        .add(
            get(
                "/api/v1/sessions",
                Scope::Read,
                "Lists sessions of browsers: an administrator's token all of them, another token its own",
                Schema::Sessions,
            )
            .query(PAGE),
            list,
        )
        .add(
            delete(
                "/api/v1/sessions/{id}",
                Scope::Read,
                "Ends a session of a browser: an administrator's token any of them, another token its own",
                Schema::SessionGone,
            )
            .refuses(&[Code::PermissionDenied]),
            end,
        )
}

/// Which tokens' sessions a client may list and end; `None` for all.
pub(super) fn own(req: &ApiRequest) -> Option<Fingerprint> {
    let may_all = req.token().is_none_or(|token| token.role.allows(Scope::Administer));
    // Who has a certificate instead of a token has no sessions, and this finds none.
    if may_all { None } else { req.session_key() }
}

/// Returns a page of the sessions that a client may see, and where the next one begins.
pub(super) async fn page(
    req: &ApiRequest,
    before: Option<Uuid>,
    limit: u32,
) -> Result<(Vec<BrowserSession>, Option<Uuid>), ApiError> {
    let now = req.app.now().await?;
    let query = SessionQuery { token: own(req), now, before, limit: limit.saturating_add(1) };
    let mut found = req.app.engine.store().browser_sessions(query).await?;
    let next = cursor::next(&mut found, limit, |last| last.id);
    // Sessions of tokens that are gone are left out: they allow nothing any more.
    let access = &req.app.engine.settings().access;
    if !access.is_open() {
        found.retain(|session| access.of_session(&session.token).is_some());
    }
    Ok((found, next))
}

async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let asked = req.page()?;
    let before = asked.cursor.as_deref().map(Uuid::try_parse).transpose();
    let before = before.map_err(|_not| Fault::field("cursor", "is not a cursor from this server"));
    let (sessions, next) = page(&req, before?, asked.limit).await?;
    let access = &req.app.engine.settings().access;
    Ok(ApiResponse::object(|object| {
        object.array("data", &sessions, |out, session| {
            let role = access.of_session(&session.token).map(|token| token.role.as_str());
            let mut object = Object::begin(out);
            fields(&mut object, session, role);
            object.end();
        });
        object.object("pagination", |object| {
            object.number("limit", asked.limit);
            object.text_or_null("next_cursor", next.map(|id| id.to_string()).as_deref());
        });
    }))
}

fn fields(object: &mut Object<'_>, session: &BrowserSession, role: Option<&str>) {
    object.plain("id", session.id);
    object.text("token", &session.name);
    object.text_or_null("role", role);
    object.text("address", &session.address);
    object.text("browser", &session.agent);
    object.time("created_at", session.created);
    object.time("used_at", session.used);
    object.time("expires_at", session.expires);
}

/// Ends the session that the path names.
pub(super) async fn end(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let id = req.param("id").await;
    let unknown = || ApiError::not_found(Missing::Session, format!("session {id} is not known"));
    let which = Uuid::try_parse(&id).map_err(|_not| unknown())?;
    let order = EndSessions { which: WhichSessions::One(which, own(&req)), by: req.by() };
    if sign_in::end(&req.app, order).await?.is_empty() {
        return Err(unknown());
    }
    Ok(ApiResponse::object(|object| {
        object.object("data", |object| {
            object.plain("id", which);
            object.flag("ended", true);
        });
    }))
}
