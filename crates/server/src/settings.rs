//! The operator's settings, as the server needs them.

use std::sync::Arc;

use outlast_core::budget::Budgets;
use outlast_core::limit::Limit;
use outlast_core::limits;
use outlast_core::time::Span;
use outlast_packs::PackSet;
use outlast_wire::schedule::NamedSchedule;

use crate::access::Access;
use crate::base_path::BasePath;
use crate::connections::ConnectionLimits;
use crate::handlers::InForce;
use crate::hidden::HiddenKeys;
use crate::packs::Packs;
use crate::tls::Tls;

/// Settings in force for the life of a server process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Known actions.
    pub packs: Packs,
    /// Who may do what (`server.tokens`).
    pub access: Arc<Access>,
    /// TLS of the listener (`server.tls`); without it connections are not encrypted.
    pub tls: Option<Arc<Tls>>,
    /// Host names that a server without tokens accepts, besides those of this machine
    /// (`server.hosts`).
    pub hosts: Vec<String>,
    /// The path below which the server is (`server.base_path`).
    pub base_path: BasePath,
    /// Which pages there are (`server.ui`).
    pub ui: UiMode,
    /// Keys of which pages hide the values (`ui.hide`).
    pub hidden: HiddenKeys,
    /// How many connections are kept (`server.connections`).
    pub connections: ConnectionLimits,
    /// Largest request body in bytes (`server.max_body`).
    pub max_body: usize,
    /// How long a shutdown waits for requests under way (`server.shutdown_timeout`).
    pub shutdown_timeout: Span,
    /// Budgets (`executor.loss_budget`, `.interruption_budget`, `.interruptions`).
    pub budgets: Budgets,
    /// How long an execution is kept while no live worker can run it
    /// (`executor.scheduled_timeout`).
    pub scheduled_timeout: Span,
    /// How long a delivered job may wait for its start (`executor.start_timeout`).
    pub start_timeout: Span,
    /// Longest time between two checks of a monitor (`executor.timeout_check_interval`).
    pub check_interval: Span,
    /// Whether stranded executions fail at all (`executor.enable_timeout_monitor`).
    pub timeout_monitor: bool,
    /// How long a plain worker that sends heartbeats may be silent before its jobs are taken
    /// back (`ojs.lease`).
    pub ojs_lease: Span,
    /// Visibility of plain OJS attempts that do not say (`ojs.visibility`).
    pub ojs_visibility: Span,
    /// Heartbeat interval granted to workers that propose none (`worker.heartbeat_interval`).
    pub heartbeat_interval: Span,
    /// Lease = interval × this (`worker.heartbeat_staleness_multiplier`).
    pub staleness_multiplier: u32,
    /// Silence after a dropped connection that lapses a worker (`worker.reconnect_window`).
    pub reconnect_window: Span,
    /// The same when the worker's system closed all of its connections at the same moment
    /// (`worker.closed_window`).
    pub closed_window: Span,
    /// How long ended jobs are kept (`retention.finished`).
    pub retention_finished: Span,
    /// How long lapsed and stopped workers are kept (`retention.workers`).
    pub retention_workers: Span,
    /// The limits that the configuration lists (`server.limits`), which the API cannot change;
    /// `None` leaves those of other servers' configurations as they are.
    pub limits: Option<Vec<Limit>>,
    /// The schedules that the configuration lists (`schedules`), which commands cannot change;
    /// `None` leaves those of other servers' configurations as they are.
    pub schedules: Option<Vec<NamedSchedule>>,
    /// What happens when a job becomes a dead letter (`dead_letters`, `webhooks`).
    pub handlers: InForce,
    /// Whether the reset URL and test directives of the conformance suites are served.
    pub conformance: bool,
    /// This server's version.
    pub version: &'static str,
}

/// Which pages a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UiMode {
    /// None.
    Off,
    /// Pages without buttons.
    ReadOnly,
    /// Pages with buttons.
    On,
}

impl Settings {
    /// Returns the defaults of the configuration with these packs.
    #[must_use]
    pub fn with_packs(packs: Arc<PackSet>) -> Self {
        Self {
            packs: packs.into(),
            access: Arc::default(),
            tls: None,
            hosts: Vec::new(),
            base_path: BasePath::default(),
            ui: UiMode::On,
            hidden: HiddenKeys::new(HiddenKeys::STANDARD),
            connections: ConnectionLimits::of_files(1024),
            max_body: limits::BODY_BYTES_MAX,
            shutdown_timeout: Span::from_secs(30),
            budgets: Budgets::DEFAULT,
            scheduled_timeout: Span::from_secs(300),
            start_timeout: Span::from_secs(30),
            check_interval: Span::from_secs(1),
            timeout_monitor: true,
            ojs_lease: Span::from_secs(30),
            ojs_visibility: Span::from_secs(1_800),
            heartbeat_interval: Span::from_secs(5),
            staleness_multiplier: 3,
            reconnect_window: Span::from_secs(5),
            closed_window: Span::from_secs(1),
            retention_finished: Span::from_secs(7 * 24 * 3600),
            retention_workers: Span::from_secs(7 * 24 * 3600),
            limits: None,
            schedules: None,
            handlers: InForce::default(),
            conformance: false,
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    /// Returns the interval granted to a worker that proposes one (zero proposes none).
    #[must_use]
    pub fn grant_interval(&self, proposed: Span) -> Span {
        let wanted = if proposed == Span::ZERO { self.heartbeat_interval } else { proposed };
        wanted.clamp(limits::HEARTBEAT_MIN, limits::HEARTBEAT_MAX)
    }

    /// Returns the lease for a heartbeat interval.
    #[must_use]
    pub const fn lease_of(&self, interval: Span) -> Span {
        Span(interval.0.saturating_mul(self.staleness_multiplier as u64))
    }
}
