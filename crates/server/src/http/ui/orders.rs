//! What the buttons of pages do: an order of the API, and then back to the page.

use axum::extract::Request;
use axum::response::Response;
use axum::routing::MethodFilter;
use outlast_dashboard::{Frame, May};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{response, run_form, sheet};
use crate::access::{Denied, Scope};
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;
use crate::http::route::Routes;
use crate::http::{
    App, executions, idempotency, limits, ojs, operations, queues, schedules, sessions, workers,
    workflows,
};
use crate::settings::UiMode;
use Scope::{Operate, Produce, Read};
use Sends::{Body, Nothing, Query};

type Fields = [(String, String)];

/// How the fields of a form reach the handler.
#[derive(Clone, Copy)]
enum Sends {
    /// As a query.
    Query,
    /// As the body that this makes of them.
    Body(fn(&App, &str, &Fields) -> Value),
    /// Not at all.
    Nothing,
}

/// A button: what it needs, how far above its path the page is, and which one is shown afterwards.
#[derive(Clone, Copy)]
struct Button {
    scope: Scope,
    up: usize,
    sends: Sends,
    /// Whether the job that it made is shown.
    makes_job: bool,
}

const fn button(scope: Scope, sends: Sends) -> Button {
    Button { scope, up: 1, sends, makes_job: false }
}

/// A button after which the job is shown that it made.
const fn makes_job(sends: Sends) -> Button {
    Button { makes_job: true, ..button(Produce, sends) }
}

/// A button after which the thing is gone, and the list is shown.
const fn of_list(scope: Scope) -> Button {
    Button { up: 2, ..button(scope, Nothing) }
}

/// Buttons whose orders have pages of their own.
const WITH_OWN_PAGES: [(&str, Button); 1] = [("/operations/begin", button(Produce, Nothing))];

/// The one table of buttons: their paths, what each needs, and the handler of the API that does its work.
macro_rules! buttons {
    ($($path:literal: $button:expr, $handler:path;)*) => {
        const BUTTONS: &[(&str, Button)] = &[$(($path, $button)),*];

        pub(super) fn routes() -> Routes {
            let routes = Routes::new();
            $(let routes = routes.page(MethodFilter::POST, $path, |app, request| {
                press(app, request, $button, |req| $handler(req))
            });)*
            routes
        }
    };
}

buttons! {
    "/jobs/{id}/cancel": button(Produce, Query), executions::cancel;
    "/jobs/{id}/retry": button(Operate, Query), executions::retry;
    "/jobs/{id}/run-now": button(Operate, Nothing), executions::run_now;
    "/jobs/{id}/rerun": makes_job(Nothing), executions::rerun;
    "/actions/{ref}/run": makes_job(Body(run)), executions::create;
    "/workers/{id}/quiet": button(Operate, Nothing), workers::quiet;
    "/workers/{id}/resume": button(Operate, Nothing), workers::resume;
    "/workers/{id}/drain": button(Operate, Nothing), workers::drain;
    "/deploy/quiet": button(Operate, Body(worker_order)), workers::give_order;
    "/deploy/resume": button(Operate, Body(worker_order)), workers::give_order;
    "/deploy/drain": button(Operate, Body(worker_order)), workers::give_order;
    "/queues/{name}/pause": button(Operate, Nothing), ojs::queues::pause;
    "/queues/{name}/resume": button(Operate, Nothing), ojs::queues::resume;
    "/queues/{name}/set": button(Operate, Body(bound)), queues::set;
    "/limits/{name}/set": button(Operate, Body(limit)), limits::set;
    "/limits/{name}/remove": of_list(Operate), limits::remove;
    "/schedules/{name}/trigger": button(Operate, Nothing), schedules::trigger;
    "/schedules/{name}/pause": button(Operate, Body(reason)), schedules::pause;
    "/schedules/{name}/resume": button(Operate, Nothing), schedules::resume;
    "/schedules/{name}/remove": of_list(Operate), schedules::remove;
    "/operations/{id}/stop": button(Produce, Nothing), operations::stop;
    "/workflows/{id}/cancel": button(Produce, Nothing), workflows::cancel;
    "/workflows/{id}/retry": button(Operate, Nothing), workflows::retry;
    "/sessions/{id}/end": of_list(Read), sessions::end;
}

/// Whether the reader of a page may press the button that goes to an address, from the page.
pub(super) fn may_press(frame: &Frame, action: &str) -> bool {
    let at = frame.path.split('?').next().unwrap_or_default();
    let folder = at.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(action.split('/')) {
        match part {
            "" | "." => {}
            ".." => parts.truncate(parts.len().saturating_sub(1)),
            part => parts.push(part),
        }
    }
    let fits = |pattern: &str| {
        let pattern: Vec<&str> = pattern.split('/').skip(1).collect();
        let same = |(of, part): (&&str, &&str)| of.starts_with('{') || of == part;
        pattern.len() == parts.len() && pattern.iter().zip(&parts).all(same)
    };
    let found = BUTTONS.iter().chain(&WITH_OWN_PAGES).find(|(pattern, _)| fits(pattern));
    found.is_some_and(|(_, button)| has(frame.reader.may, button.scope))
}

/// Whether a reader may press what needs a scope.
pub(super) const fn has(may: May, scope: Scope) -> bool {
    match scope {
        Scope::Nothing | Read => may.press,
        Produce => may.produce,
        Operate => may.operate,
        Scope::Administer => may.administer,
        Scope::Work => false,
    }
}

/// Lets a request in that gives an order: from a page of this server, by someone whose role allows it.
pub(super) async fn admitted(
    app: App,
    request: Request,
    scope: Scope,
) -> Result<ApiRequest, ApiError> {
    let req = ApiRequest::of_browser(app, request, scope).await?.of_own_page()?;
    // Its page may be older than the setting.
    if req.app.engine.settings().ui != UiMode::On {
        let words = "the pages of this server are for reading only (`server.ui: read_only`)";
        return Err(ApiError::Denied(Denied::Forbidden(words.to_owned())));
    }
    Ok(req)
}

/// Gives an order and shows the page it was given on: after a redirect if it was carried out, or with
/// the reason why not.
async fn press<F, Fut>(app: App, request: Request, button: Button, order: F) -> Response
where
    F: FnOnce(ApiRequest) -> Fut,
    Fut: Future<Output = Result<ApiResponse, ApiError>>,
{
    let asking = response::Asking::of(&request);
    let mut req = match admitted(app.clone(), request, button.scope).await {
        Ok(req) => req,
        Err(error) => return asking.refused(&app, error),
    };
    let path = req.path().trim_matches('/').to_owned();
    let parts: Vec<&str> = path.split('/').collect();
    let shown = parts[..parts.len().saturating_sub(button.up)].join("/");
    let verb = parts.last().copied().unwrap_or_default();
    let back =
        format!("{}{}", "../".repeat(button.up), shown.rsplit('/').next().unwrap_or_default());
    let Some(look) = req.for_path(&path) else {
        return asking.refused(&app, ApiError::Internal("the path is no URI".to_owned()));
    };
    let fields = match req.fields().await {
        Ok(fields) => fields,
        Err(error) => return response::not_done(&look, &error, back).await,
    };
    let req = match button.sends {
        Query => req.with_query(&fields),
        Body(make) => {
            let body = make(&app, &path, &fields);
            sent_once(req.with_json(&body), &fields, &body)
        }
        Nothing => req,
    };
    match order(req).await {
        Ok(made) if button.makes_job => {
            let made: Value = serde_json::from_slice(&made.body).unwrap_or_default();
            let id = made["data"]["id"].as_str().unwrap_or_default();
            response::to(&format!("{}jobs/{id}?done={verb}", "../".repeat(parts.len() - 1)))
        }
        Ok(_) => response::to(&format!("{back}?done={verb}")),
        Err(failure) => response::not_done(&look, &failure, back).await,
    }
}

/// The same request with a key by which it is known when the same form is sent again with the same
/// content.
pub(super) fn sent_once(req: ApiRequest, fields: &Fields, body: &Value) -> ApiRequest {
    match given(fields, sheet::ONCE).filter(|once| Uuid::try_parse(once).is_ok()) {
        Some(once) => {
            let key = idempotency::begins(once, None, body.to_string().as_bytes());
            req.with_header(idempotency::HEADER, &key)
        }
        None => req,
    }
}

/// What to say after a redirect; only of what there is a button for.
pub(super) fn done(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "cancel" => "it is cancelled.",
        "retry" => "it runs again.",
        "run-now" => "it need not wait any more.",
        "rerun" => "this is the copy.",
        "run" => "this is its job.",
        "quiet" => "no new jobs are given out there.",
        "resume" => "it goes on.",
        "drain" => "it finishes its jobs and stops.",
        "pause" => "it is paused.",
        "set" => "it is set.",
        "remove" => "it is removed.",
        "end" => "the session has ended.",
        "trigger" => "it has fired.",
        "stop" => "it is stopped.",
        _ => return None,
    })
}

pub(super) fn given<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    let found = fields.iter().find(|(field, _)| field == name);
    found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
}

/// Texts that are numbers become numbers; the API says of others what is wrong.
fn number(text: &str) -> Value {
    text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number))
}

fn run(app: &App, path: &str, fields: &Fields) -> Value {
    let name = path.split('/').nth(1).unwrap_or_default();
    let packs = app.engine.settings().packs.current();
    let schema = packs.get(name).map(outlast_packs::Action::schema).unwrap_or_default();
    run_form::request(name, schema, fields)
}

fn worker_order(_app: &App, path: &str, fields: &Fields) -> Value {
    let order = path.rsplit('/').next().unwrap_or_default();
    json!({"order": order, "selector": given(fields, "selector").unwrap_or_default()})
}

fn bound(_app: &App, _path: &str, fields: &Fields) -> Value {
    json!({"max_depth": given(fields, "max_depth").map(number)})
}

fn limit(_app: &App, _path: &str, fields: &Fields) -> Value {
    let mut body = Map::new();
    for kind in ["queue", "type", "key"] {
        if let Some(of) = given(fields, kind) {
            body.insert("scope".to_owned(), json!(kind));
            body.insert("of".to_owned(), json!(of));
        }
    }
    body.insert("concurrency".to_owned(), given(fields, "concurrency").map_or(Value::Null, number));
    body.insert("rate".to_owned(), given(fields, "rate").map_or(Value::Null, |rate| json!(rate)));
    Value::Object(body)
}

fn reason(_app: &App, _path: &str, fields: &Fields) -> Value {
    json!({"reason": given(fields, "reason").unwrap_or_default()})
}
