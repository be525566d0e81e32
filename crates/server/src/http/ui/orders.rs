//! What the buttons of pages do: an order of the API, and then back to the page.

use axum::extract::Request;
use axum::response::Response;
use axum::routing::MethodFilter;
use serde_json::{Map, Value, json};

use super::{catalog, response};
use crate::access::Scope;
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;
use crate::http::route::Routes;
use crate::http::{
    App, executions, limits, ojs, operations, queues, schedules, workers, workflows,
};

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

/// Adds a button with the handler of the API that does its work.
macro_rules! add {
    ($routes:ident, $path:expr, $button:expr, $handler:path) => {
        $routes = $routes.page(MethodFilter::POST, $path, move |app, request| {
            press(app, request, $button, |req| $handler(req))
        });
    };
}

pub(super) fn routes() -> Routes {
    use Scope::{Operate, Produce};
    use Sends::{Body, Nothing, Query};
    let mut all = Routes::new();
    let made = Button { makes_job: true, ..button(Produce, Nothing) };
    add!(all, "/jobs/{id}/cancel", button(Produce, Query), executions::cancel);
    add!(all, "/jobs/{id}/retry", button(Operate, Query), executions::retry);
    add!(all, "/jobs/{id}/run-now", button(Operate, Nothing), executions::run_now);
    add!(all, "/jobs/{id}/rerun", made, executions::rerun);
    let run = Button { makes_job: true, ..button(Produce, Body(run)) };
    add!(all, "/actions/{ref}/run", run, executions::create);
    add!(all, "/workers/{id}/quiet", button(Operate, Nothing), workers::quiet);
    add!(all, "/workers/{id}/resume", button(Operate, Nothing), workers::resume);
    add!(all, "/workers/{id}/drain", button(Operate, Nothing), workers::drain);
    for path in ["/deploy/quiet", "/deploy/resume", "/deploy/drain"] {
        add!(all, path, button(Operate, Body(worker_order)), workers::give_order);
    }
    add!(all, "/queues/{name}/pause", button(Operate, Nothing), ojs::queues::pause);
    add!(all, "/queues/{name}/resume", button(Operate, Nothing), ojs::queues::resume);
    add!(all, "/queues/{name}/set", button(Operate, Body(bound)), queues::set);
    add!(all, "/limits/{name}/set", button(Operate, Body(limit)), limits::set);
    let remove = Button { up: 2, ..button(Operate, Nothing) };
    add!(all, "/limits/{name}/remove", remove, limits::remove);
    add!(all, "/schedules/{name}/trigger", button(Operate, Nothing), schedules::trigger);
    add!(all, "/schedules/{name}/pause", button(Operate, Body(reason)), schedules::pause);
    add!(all, "/schedules/{name}/resume", button(Operate, Nothing), schedules::resume);
    add!(all, "/schedules/{name}/remove", remove, schedules::remove);
    add!(all, "/operations/{id}/stop", button(Produce, Nothing), operations::stop);
    add!(all, "/workflows/{id}/cancel", button(Produce, Nothing), workflows::cancel);
    add!(all, "/workflows/{id}/retry", button(Operate, Nothing), workflows::retry);
    all
}

/// Gives an order and shows the page it was given on: after a redirect if it was carried out, or with
/// the reason why not.
async fn press<F, Fut>(app: App, request: Request, button: Button, order: F) -> Response
where
    F: FnOnce(ApiRequest) -> Fut,
    Fut: Future<Output = Result<ApiResponse, ApiError>>,
{
    let asking = response::Asking::of(&request);
    let req = ApiRequest::new(app.clone(), request).allowed(button.scope);
    let mut req = match req.and_then(ApiRequest::of_own_page) {
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
        Sends::Query => req.with_query(&fields),
        Sends::Body(make) => req.with_json(&make(&app, &path, &fields)),
        Sends::Nothing => req,
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
        "trigger" => "it has fired.",
        "stop" => "it is stopped.",
        _ => return None,
    })
}

fn given<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
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
    catalog::request(name, schema, fields)
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
