//! One run: what is measured, where and in which order.
//!
//! ```text
//! baselines ─▶ memory ─▶ each figure on an empty store ─▶ restart
//!                             └▶ each again on a filled store, beside the first
//! ```

use std::collections::BTreeSet;
use std::path::PathBuf;

use outlast_cli_core::client::{Client, ClientConfig};
use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::say;

use crate::figures::{Figure, rounded};
use crate::fill::Fill;
use crate::measurement::Measurement;
use crate::plan::Plan;
use crate::report::Report;
use crate::target::Target;
use crate::{baselines, drain, enqueue, latency, limits, memory, restart, server, workflows};

/// Everything that was asked for.
#[derive(Debug)]
pub struct Suite {
    /// What to measure.
    pub wanted: BTreeSet<Measurement>,
    /// How much.
    pub plan: Plan,
    /// Jobs that are in the store when everything is measured again.
    pub fill: Fill,
    /// The server that was named; none to start our own.
    pub named: Option<ClientConfig>,
    /// PostgreSQL for the stores of our own servers; none for the embedded store.
    pub database: Option<String>,
    /// Where temporary stores are made.
    pub data: Option<PathBuf>,
}

impl Suite {
    /// Runs every measurement that is wanted, the baselines first.
    ///
    /// # Errors
    /// When a measurement cannot be completed; nothing of it is left behind.
    pub async fn run(self) -> Result<Report, Failure> {
        if let Some(config) = &self.named {
            // Before anything takes time.
            Client::new(config.clone())?.get(&["health", "live"], &[]).await?;
        }
        let baselines = self.baselines().await?;
        let mut figures = Vec::new();
        if self.wanted.contains(&Measurement::Memory) {
            figures.extend(memory::measure(self.data.as_deref(), &self.plan).await?);
        }
        for what in &self.wanted {
            if what.runs_on_any_server() || what.needs_own_server() {
                // Each has its own store: what one leaves behind is not the next one's load.
                let mut target = self.target().await?;
                match what {
                    Measurement::Limits => {
                        figures.extend(limits::measure(&target, &self.plan).await?);
                    }
                    Measurement::Workflows => {
                        figures.extend(workflows::measure(&target, &self.plan).await?);
                    }
                    _ => figures.push(self.one(*what, &mut target).await?),
                }
                target.close().await?;
            }
        }
        let filled =
            !self.fill.is_nothing() && self.wanted.iter().any(|it| it.runs_on_any_server());
        if filled {
            figures.extend(self.filled(&figures).await?);
        }
        if self.wanted.contains(&Measurement::Restart) {
            let folder = server::temporary_folder(self.data.as_deref())?;
            figures.extend(restart::measure(folder.path(), &self.plan).await?);
        }
        let filled = filled.then(|| self.fill.to_json()).into();
        let server = self.named.map(|config| config.server);
        Ok(Report { figures, baselines, filled, server })
    }

    async fn baselines(&self) -> Result<serde_json::Value, Failure> {
        say("ceilings of this machine\n");
        let folder = server::temporary_folder(self.data.as_deref())?;
        let producers = self.plan.producers.unwrap_or(enqueue::PRODUCERS);
        let database = self.database.as_deref();
        baselines::measure(folder.path(), database, self.plan.baseline_time, producers).await
    }

    async fn target(&self) -> Result<Target, Failure> {
        match &self.named {
            Some(config) => Target::named(config.clone()),
            None => {
                let folder = server::temporary_folder(self.data.as_deref())?;
                Target::own(folder, self.database.as_deref()).await
            }
        }
    }

    async fn one(&self, what: Measurement, target: &mut Target) -> Result<Figure, Failure> {
        let mut figure = match what {
            Measurement::Enqueue => enqueue::single(target, &self.plan).await?,
            Measurement::Bulk => enqueue::bulk(target, &self.plan).await?,
            Measurement::Drain => drain::measure(target, &self.plan).await?,
            Measurement::DrainRestarted => drain::restarted(target, &self.plan).await?,
            Measurement::DrainAcross => drain::across(target, &self.plan).await?,
            Measurement::Latency => latency::measure(target, &self.plan).await?,
            Measurement::Memory
            | Measurement::Restart
            | Measurement::Limits
            | Measurement::Workflows => {
                return Err(Failure::failed(format!("{what:?} is not one figure")));
            }
        };
        if let Some(kib) = target.resident_kib() {
            figure.note("server_resident_kib_after", kib);
        }
        Ok(figure)
    }

    /// The same figures on a store that is filled, each as a part of the figure on an empty one.
    async fn filled(&self, empty: &[Figure]) -> Result<Vec<Figure>, Failure> {
        let mut target = self.target().await?;
        self.fill.put_into(&target).await?;
        let mut figures = Vec::new();
        for what in self.wanted.iter().filter(|what| what.runs_on_any_server()) {
            let mut figure = self.one(*what, &mut target).await?;
            let beside = empty.iter().find(|empty| empty.name == figure.name);
            if let Some(part) = beside.and_then(|empty| figure.part_of(empty)) {
                figure.note("of_empty", rounded(part));
            }
            figure.name.push_str(".filled");
            figures.push(figure);
        }
        self.fill.clear(&target).await?;
        target.close().await?;
        Ok(figures)
    }
}
