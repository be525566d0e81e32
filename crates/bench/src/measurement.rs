//! What can be measured.

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measurement {
    /// Resident memory of an idle server and an idle worker.
    Memory,
    /// Jobs per second over HTTP, one per request.
    Enqueue,
    /// Jobs per second over HTTP, many per request.
    Bulk,
    /// No-op jobs per second through one worker.
    Drain,
    /// The same after a kill and a restart of the server.
    DrainRestarted,
    /// The same of jobs that were enqueued at another server on the same database.
    DrainAcross,
    /// From an enqueue to the start of its handler.
    Latency,
    /// Jobs per second with keys and limits, compared with jobs that have none.
    Limits,
    /// Jobs per second as steps of workflows, compared with jobs of none.
    Workflows,
    /// From a kill until work continues.
    Restart,
}

impl Measurement {
    /// What runs when everything is asked for.
    pub const DEFAULT: [Self; 8] = [
        Self::Memory,
        Self::Enqueue,
        Self::Bulk,
        Self::Drain,
        Self::Latency,
        Self::Limits,
        Self::Workflows,
        Self::Restart,
    ];

    /// Whether any server will do. The others start, and kill, processes of their own.
    #[must_use]
    pub const fn runs_on_any_server(self) -> bool {
        match self {
            Self::Enqueue | Self::Bulk | Self::Drain | Self::Latency => true,
            Self::Memory
            | Self::Restart
            | Self::DrainRestarted
            | Self::DrainAcross
            | Self::Limits
            | Self::Workflows => false,
        }
    }

    /// Whether it needs a server of our own, with either store.
    #[must_use]
    pub const fn needs_own_server(self) -> bool {
        matches!(self, Self::DrainRestarted | Self::DrainAcross | Self::Limits | Self::Workflows)
    }
}
