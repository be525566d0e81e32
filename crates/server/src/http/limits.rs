//! Limits: set, list, show with what is in use, remove.

use std::collections::HashMap;
use std::fmt::Display;

use http::StatusCode;
use outlast_core::gate::{Shut, admit};
use outlast_core::id::WorkerId;
use outlast_core::limit::{GateId, GateOf, Limit, LimitName, Scope as LimitScope};
use outlast_core::time::Timestamp;
use outlast_store::limit::{
    GateHolder, GateQuery, GateRecord, LimitChange, LimitRecord, LimitRefusal, RemoveLimit,
    SetLimit, gate_state,
};
use outlast_store::{Request, Store, StoreError};
use outlast_wire::Fault;
use outlast_wire::json::Object;
use outlast_wire::limit;
use outlast_wire::ojs::error::Code;

use super::App;
use super::error::{ApiError, Missing};
use super::request::ApiRequest;
use super::response::{ApiResponse, object};
use super::route::{Routes, delete, get, put};
use super::schema::Schema;
use crate::access::Scope;

/// Most gates, and most holders of all of them, that one response shows.
const SHOWN_MAX: u32 = 100;

/// Most gates that are read to find them: some may be of a limit that had the name before.
const READ_MAX: u32 = 10 * SHOWN_MAX;

const SHOW: &[(&str, &str)] =
    &[("value", "Only this value of the key, of a limit on a key; whether or not it is in use")];

pub(super) fn routes() -> Routes {
    const ALL: &str = "/api/v1/limits";
    const ONE: &str = "/api/v1/limits/{name}";
    Routes::new()
        .add(get(ALL, Scope::Read, "Lists limits", Schema::Limits), list)
        .add(
            get(ONE, Scope::Read, "Shows a limit, and which jobs use it", Schema::Limit)
                .query(SHOW),
            show,
        )
        .add(
            put(ONE, Scope::Operate, "Sets a limit", Schema::Limit)
                .takes(Schema::LimitRequest)
                .statuses(&[200, 201])
                .refuses(&[Code::Conflict]),
            set,
        )
        .add(
            delete(ONE, Scope::Operate, "Removes a limit", Schema::LimitGone)
                .refuses(&[Code::Conflict]),
            remove,
        )
}

/// Returns the limits, each with how many attempts it counts; not those on a key, of which each
/// value counts for itself.
pub(crate) async fn with_in_flight(
    store: &dyn Store,
) -> Result<Vec<(LimitRecord, Option<u64>)>, StoreError> {
    let records = store.limits().await?;
    let gate = |record: &LimitRecord| gate_without_value(&record.limit).map(|gate| gate.id());
    let ids: Vec<GateId> = records.iter().filter_map(gate).collect();
    let found = if ids.is_empty() { Vec::new() } else { store.gate_states(ids).await? };
    let counts: HashMap<GateId, u64> = found.iter().map(|it| (it.id, it.in_flight)).collect();
    let count = |id: GateId| counts.get(&id).copied().unwrap_or_default();
    let with_count = |record: LimitRecord| {
        let in_flight = gate(&record).map(count);
        (record, in_flight)
    };
    Ok(records.into_iter().map(with_count).collect())
}

async fn list(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let limits = with_in_flight(req.app.engine.store().as_ref()).await?;
    Ok(ApiResponse::object(|object| {
        object.array("data", &limits, |out, (record, in_flight)| {
            let mut object = Object::begin(out);
            fields(&mut object, record);
            number_or_null(&mut object, "in_flight", *in_flight);
            object.end();
        });
    }))
}

async fn show(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let name = name(&mut req).await?;
    let record = find(&req.app, &name).await?;
    let value = req.query("value");
    let used = InUse::read(&req.app, &record, value.as_deref()).await?;
    Ok(ApiResponse::object(|object| {
        object.object("data", |object| {
            fields(object, &record);
            used.write(object);
        });
    }))
}

pub(super) async fn set(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let name = name(&mut req).await?;
    let body = req.body().await?;
    let limit = limit::read(name.clone(), &body)?;
    let order = SetLimit { limit, configured: false, by: req.by() };
    let change = changed(&req.app, &name, order).await?;
    req.app.snapshots.forget().await;
    let status = if change == LimitChange::Created { StatusCode::CREATED } else { StatusCode::OK };
    let record = find(&req.app, &name).await?;
    let used = InUse::read(&req.app, &record, None).await?;
    let document = object(|object| {
        object.object("data", |object| {
            fields(object, &record);
            used.write(object);
        });
    });
    Ok(ApiResponse::ok(document).with_status(status))
}

pub(super) async fn remove(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let name = name(&mut req).await?;
    let order = RemoveLimit { name: name.clone(), configured: false, by: req.by() };
    match changed(&req.app, &name, order).await? {
        LimitChange::NotFound => Err(unknown(&name)),
        LimitChange::Created
        | LimitChange::Replaced
        | LimitChange::Unchanged
        | LimitChange::Removed => {
            req.app.snapshots.forget().await;
            Ok(ApiResponse::object(|object| {
                object.object("data", |object| {
                    object.text("name", name.as_str());
                    object.flag("removed", true);
                });
            }))
        }
    }
}

async fn name(req: &mut ApiRequest) -> Result<LimitName, ApiError> {
    let name = req.param("name").await;
    Ok(limit::name(&name)?)
}

fn unknown(name: &LimitName) -> ApiError {
    ApiError::not_found(Missing::Limit, format!("limit {name} is not known"))
}

pub(super) async fn find(app: &App, name: &LimitName) -> Result<LimitRecord, ApiError> {
    let records = app.engine.store().limits().await?;
    let found = records.into_iter().find(|record| record.limit.name == *name);
    found.ok_or_else(|| unknown(name))
}

async fn changed<R>(app: &App, name: &LimitName, order: R) -> Result<LimitChange, ApiError>
where
    R: Request<Reply = Result<LimitChange, LimitRefusal>>,
{
    app.engine.submit(order).await?.map_err(|refusal| match refusal {
        LimitRefusal::Configured => ApiError::Conflict(format!(
            "limit {name} is set by the server's configuration, which wins over this API; change \
             `limits` in its file and send SIGHUP"
        )),
        LimitRefusal::TooMany => {
            ApiError::Conflict(format!("{refusal}: limit {name} is not set; remove another first"))
        }
    })
}

/// Writes a limit's fields.
fn fields(object: &mut Object<'_>, record: &LimitRecord) {
    let limit = &record.limit;
    object.text("name", limit.name.as_str());
    object.text("scope", limit.scope.kind());
    object.text("of", limit.scope.of());
    number_or_null(object, "concurrency", limit.concurrency);
    object.text_or_null("rate", limit.rate.map(limit::rate_text).as_deref());
    object.flag("configured", record.configured);
    object.text("set_by", &record.set_by);
    object.time("set_at", record.set_at);
}

fn number_or_null(object: &mut Object<'_>, name: &str, number: Option<impl Display>) {
    match number {
        Some(number) => object.number(name, number),
        None => object.raw(name, "null"),
    }
}

/// Returns the one gate of a limit that does not tell values apart.
fn gate_without_value(limit: &Limit) -> Option<GateOf<'_>> {
    match &limit.scope {
        LimitScope::Queue(_) | LimitScope::Type(_) => Some(GateOf { limit, value: None }),
        LimitScope::Key(_) => None,
    }
}

/// What is in use of a limit.
pub(super) struct InUse<'a> {
    limit: &'a Limit,
    pub(super) gates: Vec<(GateRecord, Vec<GateHolder>)>,
    /// There is more than is shown.
    pub(super) more: bool,
    pub(super) workers: HashMap<WorkerId, String>,
    now: Timestamp,
}

impl<'a> InUse<'a> {
    pub(super) async fn read(
        app: &App,
        record: &'a LimitRecord,
        value: Option<&str>,
    ) -> Result<Self, ApiError> {
        let store = app.engine.store();
        let limit = &record.limit;
        let one = match value {
            Some(value) if matches!(limit.scope, LimitScope::Key(_)) => {
                Some(GateOf { limit, value: Some(value) })
            }
            Some(_) => {
                let (kind, of) = (limit.scope.kind(), limit.scope.of());
                let problem = format!(
                    "goes with a limit on a key; {} is on {kind} {of}, whose jobs count together",
                    limit.name
                );
                return Err(Fault::rule("value", problem).into());
            }
            None => gate_without_value(limit),
        };
        let mut more = false;
        let found = match one {
            Some(gate) => {
                let (id, value) = (gate.id(), gate.value.map(ToOwned::to_owned));
                let found = store.gate_states(vec![id]).await?.pop();
                let unused = GateRecord { id, value, in_flight: 0, used_until: 0 };
                vec![found.unwrap_or(unused)]
            }
            None => {
                let query = GateQuery { name: limit.name.clone(), limit: READ_MAX };
                let mut found = store.gates(query).await?;
                let is_cut = found.len() >= READ_MAX as usize;
                // Others are of a limit that had this name before.
                found.retain(|gate| GateOf { limit, value: gate.value.as_deref() }.id() == gate.id);
                more = is_cut || found.len() > SHOWN_MAX as usize;
                found.truncate(SHOWN_MAX as usize);
                found
            }
        };
        let mut gates = Vec::with_capacity(found.len());
        let mut room = SHOWN_MAX;
        for gate in found {
            let mut holders = Vec::new();
            if gate.in_flight > 0 && room > 0 {
                holders = store.gate_holders(gate.id, room).await?;
                room = room.saturating_sub(u32::try_from(holders.len()).unwrap_or(u32::MAX));
            }
            // Without room, more of them hold it than are shown.
            more |= room == 0 && gate.in_flight > holders.len() as u64;
            gates.push((gate, holders));
        }
        let mut ids: Vec<WorkerId> =
            gates.iter().flat_map(|(_, holders)| holders).filter_map(|it| it.worker).collect();
        ids.sort_unstable();
        ids.dedup();
        let named = if ids.is_empty() { Vec::new() } else { store.workers_named(ids).await? };
        let workers = named.into_iter().map(|worker| (worker.id, worker.name)).collect();
        Ok(Self { limit, gates, more, workers, now: app.now().await? })
    }

    fn write(&self, object: &mut Object<'_>) {
        object.array("in_use", &self.gates, |out, (gate, holders)| {
            let mut object = Object::begin(out);
            object.text_or_null("value", gate.value.as_deref());
            object.number("in_flight", gate.in_flight);
            number_or_null(&mut object, "concurrency", self.limit.concurrency);
            object.time_or_null("rate_opens", self.opens(gate));
            object.array("holders", holders, |out, holder| self.holder(out, holder));
            object.end();
        });
        object.flag("more", self.more);
    }

    /// Returns when the rate lets the next job start, if it does not now.
    pub(super) fn opens(&self, gate: &GateRecord) -> Option<Timestamp> {
        let rated = gate_state(None, self.limit.rate, Some(gate));
        match admit(&[rated], 1, self.now).shut {
            Some((_, Shut::Until(at))) => Some(at),
            Some((_, Shut::Full)) | None => None,
        }
    }

    fn holder(&self, out: &mut Vec<u8>, holder: &GateHolder) {
        let mut object = Object::begin(out);
        object.plain("job", holder.job);
        let named = holder.worker.and_then(|id| self.workers.get(&id));
        let name = named.or(holder.plain.as_ref());
        object.object("worker", |object| {
            match holder.worker {
                Some(id) => object.plain("id", id),
                None => object.raw("id", "null"),
            }
            object.text_or_null("name", name.map(String::as_str));
        });
        object.time("since", holder.claimed);
        object.end();
    }
}
