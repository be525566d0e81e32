//! A plain status page without scripts. Everything that comes from clients is escaped.

use std::fmt::Write as _;

use outlast_store::Store;
use outlast_store::limit::LimitRecord;
use outlast_store::query::WorkerQuery;
use outlast_store::record::WorkerRecord;
use outlast_wire::limit::rate_text;

use super::error::ApiError;
use super::request::ApiRequest;
use super::response::ApiResponse;
use crate::snapshot::WorkerCounts;

/// Most workers shown.
const WORKERS_SHOWN: u32 = 100;

pub(super) async fn show(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let engine = &req.app.engine;
    let (snapshot, workers) = (req.app.snapshot().await?, workers(engine.store().as_ref()).await?);
    let now = req.app.now().await?;
    let mut page = Page::new(engine.settings().version);
    if !engine.store().facts().durable {
        page.warn("--unsafe-no-fsync: a crash loses accepted jobs. For experiments only.");
    }
    page.table(
        "Queues",
        &["queue", "waiting", "delayed", "retrying", "active", "completed", "discarded"],
    );
    for queue in &snapshot.queues {
        let name =
            if queue.paused { format!("{} (paused)", queue.name) } else { queue.name.clone() };
        page.row(&[
            &name,
            &queue.available.to_string(),
            &queue.scheduled.to_string(),
            &queue.retryable.to_string(),
            &queue.active.to_string(),
            &queue.completed.to_string(),
            &queue.discarded.to_string(),
        ]);
    }
    page.end_table();
    limits(&mut page, &snapshot.limits);
    let WorkerCounts { running, quiet, draining, suspect } = snapshot.workers;
    page.note(&format!(
        "Counted {} ms ago. {} jobs wait. Live workers: {running} running, {quiet} quiet, \
         {draining} draining, {suspect} suspect.",
        snapshot.age().0,
        snapshot.totals.depth(),
    ));
    page.table("Workers", &["worker", "role", "state", "in flight", "heartbeat"]);
    for worker in &workers {
        page.row(&[
            &worker.name,
            worker.role.as_str(),
            worker.standing.state(),
            &format!("{} of {}", worker.in_flight, worker.concurrency),
            &format!("{} s ago", now.since(worker.last_heartbeat).as_secs()),
        ]);
    }
    page.end_table();
    Ok(ApiResponse::text("text/html; charset=utf-8", page.end().into_bytes()))
}

/// Shows the limits, if there are any.
fn limits(page: &mut Page, limits: &[(LimitRecord, Option<u64>)]) {
    if limits.is_empty() {
        return;
    }
    page.table("Limits", &["limit", "for", "in flight", "rate"]);
    for (LimitRecord { limit, .. }, in_flight) in limits {
        let most = limit.concurrency.map_or_else(|| "any number".into(), |most| most.to_string());
        let each = if in_flight.is_none() { " for each value" } else { "" };
        let count = in_flight.map_or_else(String::new, |count| format!("{count} of "));
        page.row(&[
            limit.name.as_str(),
            &format!("{} {}", limit.scope.kind(), limit.scope.of()),
            &format!("{count}{most}{each}"),
            &limit.rate.map_or_else(|| "-".into(), rate_text),
        ]);
    }
    page.end_table();
}

/// Returns the active workers, and of the others those that fit.
async fn workers(store: &dyn Store) -> Result<Vec<WorkerRecord>, ApiError> {
    let of = |status: &str, limit: u32| {
        let status = Some(status.to_owned());
        store.workers_page(WorkerQuery { status, ..WorkerQuery::all(limit) })
    };
    let mut shown = of("active", WORKERS_SHOWN).await?.workers;
    let left = WORKERS_SHOWN.saturating_sub(u32::try_from(shown.len()).unwrap_or(u32::MAX));
    if left > 0 {
        shown.extend(of("inactive", left).await?.workers);
    }
    Ok(shown)
}

/// An HTML page under construction. Writing to a string cannot fail.
struct Page(String);

impl Page {
    fn new(version: &str) -> Self {
        let mut page = String::from(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Outlast</title>\
             <style>body{font:15px system-ui,sans-serif;margin:2rem;max-width:60rem}\
             table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .8rem \
             .3rem 0;border-bottom:1px solid #ccc}</style></head><body><h1>Outlast ",
        );
        page.push_str(&escaped(version));
        page.push_str("</h1>");
        Self(page)
    }

    fn warn(&mut self, what: &str) {
        write!(self.0, "<p role=\"alert\"><strong>{}</strong></p>", escaped(what))
            .unwrap_or_default();
    }

    fn note(&mut self, what: &str) {
        write!(self.0, "<p>{}</p>", escaped(what)).unwrap_or_default();
    }

    fn table(&mut self, title: &str, columns: &[&str]) {
        write!(self.0, "<h2>{title}</h2><table><tr>").unwrap_or_default();
        for column in columns {
            write!(self.0, "<th>{column}</th>").unwrap_or_default();
        }
        self.0.push_str("</tr>");
    }

    fn row(&mut self, cells: &[&str]) {
        self.0.push_str("<tr>");
        for cell in cells {
            write!(self.0, "<td>{}</td>", escaped(cell)).unwrap_or_default();
        }
        self.0.push_str("</tr>");
    }

    fn end_table(&mut self) {
        self.0.push_str("</table>");
    }

    fn end(mut self) -> String {
        self.0.push_str("<p><a href=\"/metrics\">metrics</a> · <a href=\"/health/ready\">health</a></p></body></html>");
        self.0
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
