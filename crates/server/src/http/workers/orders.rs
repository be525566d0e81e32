//! Orders to all workers that are chosen: given, and those that stand.

use outlast_core::selector::Selector;
use outlast_core::worker::order::{OrderChange, StandingOrder, WorkerOrder};
use outlast_store::record::WorkerRecord;
use outlast_store::reply::WorkersOrdered;
use outlast_wire::json::Object;
use outlast_wire::ojs::error::Code;
use outlast_wire::worker_order;

use crate::access::Scope;
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::response::ApiResponse;
use crate::http::route::{Routes, get, post};
use crate::http::schema::Schema;

pub(super) fn routes() -> Routes {
    const PATH: &str = "/api/v1/workers/orders";
    Routes::new()
        .add(
            get(
                PATH,
                Scope::Read,
                "Lists the orders that hold for workers that start later",
                Schema::WorkerOrders,
            ),
            list,
        )
        .add(
            post(
                PATH,
                Scope::Operate,
                "Orders all workers that a selector chooses, and those that start later",
                Schema::WorkersOrdered,
            )
            .takes(Schema::WorkerOrderRequest)
            .refuses(&[Code::Conflict]),
            give,
        )
}

async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let store = req.app.engine.store();
    let orders = store.standing_orders().await?;
    let live = if orders.is_empty() { Vec::new() } else { store.live_workers().await? };
    Ok(ApiResponse::object(|object| {
        object.array("data", &orders, |out, order| {
            let mut object = Object::begin(out);
            fields(&mut object, order, &live);
            object.end();
        });
    }))
}

/// Writes an order, with how many of the live workers it is to.
fn fields(object: &mut Object<'_>, order: &StandingOrder, live: &[WorkerRecord]) {
    let is_to =
        |worker: &&WorkerRecord| worker.standing.holds_lease() && order.is_to(&worker.labels);
    object.text("selector", &order.selector.to_string());
    object.text("order", order.order.as_str());
    object.text("set_by", &order.set_by);
    object.time("set_at", order.set_at);
    object.number("workers", live.iter().filter(is_to).count());
}

pub(in crate::http) async fn give(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let body = req.body().await?;
    let (order, selector) = worker_order::read(&body)?;
    let by = req.by();
    let ordered = req.app.engine.order_workers(selector.clone(), order, by).await?;
    let ordered = ordered.map_err(|refusal| ApiError::Conflict(refusal.to_string()))?;
    Ok(response(order, &selector, &ordered))
}

fn response(order: WorkerOrder, selector: &Selector, ordered: &WorkersOrdered) -> ApiResponse {
    let WorkersOrdered { change, reached, kept } = ordered;
    let standing = match change {
        OrderChange::Stand => "set",
        OrderChange::LiftOne | OrderChange::LiftAll => "lifted",
        OrderChange::Nothing => "unchanged",
    };
    ApiResponse::object(|object| {
        object.object("data", |object| {
            object.text("order", order.as_str());
            object.text("selector", &selector.to_string());
            object.text("standing_order", standing);
            object.array("reached", reached, |out, worker| {
                let mut object = Object::begin(out);
                object.plain("id", worker);
                object.end();
            });
            object.array("kept", kept, |out, (worker, by)| {
                let mut object = Object::begin(out);
                object.plain("id", worker);
                object.text("by_selector", &by.to_string());
                object.end();
            });
        });
    })
}
