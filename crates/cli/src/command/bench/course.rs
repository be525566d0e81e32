//! The course of a run: what is measured, where, and in which order.
//!
//! ```text
//! ceilings ─▶ memory ─▶ each figure on an empty store ─▶ restart
//!                            └▶ each again on a filled store, beside the first
//! ```

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::What;
use super::figures::{Figure, rounded};
use super::fill::Fill;
use super::place::{self, Place};
use super::plan::Plan;
use super::report::Report;
use super::{ceilings, drain, enqueue, latency, memory, restart};
use crate::config::client::ClientConfig;
use crate::exit::Failure;
use crate::output::say;

/// Everything that was asked for.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) wanted: BTreeSet<What>,
    pub(super) plan: Plan,
    pub(super) fill: Fill,
    /// The server that was named; none to start our own.
    pub(super) named: Option<ClientConfig>,
    /// PostgreSQL for the stores of our own servers; none for the embedded store.
    pub(super) database: Option<String>,
    /// Where temporary stores are made.
    pub(super) data: Option<PathBuf>,
}

impl Course {
    pub(super) async fn run(self) -> Result<Report, Failure> {
        let ceilings = self.ceilings().await?;
        let mut figures = Vec::new();
        if self.wanted.contains(&What::Memory) {
            figures.extend(memory::measure(self.data.as_deref(), &self.plan).await?);
        }
        for what in &self.wanted {
            if what.is_of_a_server() || what.is_of_an_own_server() {
                // A store of its own for each: what one leaves behind is not the next one's load.
                let mut place = self.place().await?;
                figures.push(self.one(*what, &mut place).await?);
                place.leave().await?;
            }
        }
        let filled = !self.fill.is_nothing() && self.wanted.iter().any(|it| it.is_of_a_server());
        if filled {
            figures.extend(self.filled(&figures).await?);
        }
        if self.wanted.contains(&What::Restart) {
            let folder = place::folder(self.data.as_deref())?;
            figures.extend(restart::measure(folder.path(), &self.plan).await?);
        }
        let filled = filled.then(|| self.fill.to_json()).into();
        let server = self.named.map(|config| config.server);
        Ok(Report { figures, ceilings, filled, server })
    }

    async fn ceilings(&self) -> Result<serde_json::Value, Failure> {
        say("ceilings of this machine\n");
        let folder = place::folder(self.data.as_deref())?;
        let producers = self.plan.producers.unwrap_or(enqueue::PRODUCERS);
        let database = self.database.as_deref();
        ceilings::measure(folder.path(), database, self.plan.ceiling_time, producers).await
    }

    async fn place(&self) -> Result<Place, Failure> {
        match &self.named {
            Some(config) => Place::named(config.clone()),
            None => {
                let folder = place::folder(self.data.as_deref())?;
                Place::own(folder, self.database.as_deref()).await
            }
        }
    }

    async fn one(&self, what: What, place: &mut Place) -> Result<Figure, Failure> {
        let mut figure = match what {
            What::Enqueue => enqueue::single(place, &self.plan).await?,
            What::Bulk => enqueue::bulk(place, &self.plan).await?,
            What::Drain => drain::measure(place, &self.plan).await?,
            What::DrainRestarted => drain::restarted(place, &self.plan).await?,
            What::DrainAcross => drain::across(place, &self.plan).await?,
            What::Latency => latency::measure(place, &self.plan).await?,
            What::All | What::Memory | What::Restart => {
                return Err(Failure::failed(format!("{what:?} is not measured on a server")));
            }
        };
        if let Some(kib) = place.resident_kib() {
            figure.note("server_resident_kib_after", kib);
        }
        Ok(figure)
    }

    /// The same figures on one store that is filled, each with its part of the empty one.
    async fn filled(&self, empty: &[Figure]) -> Result<Vec<Figure>, Failure> {
        let mut place = self.place().await?;
        self.fill.put_into(&place).await?;
        let mut figures = Vec::new();
        for what in self.wanted.iter().filter(|what| what.is_of_a_server()) {
            let mut figure = self.one(*what, &mut place).await?;
            let beside = empty.iter().find(|empty| empty.name == figure.name);
            if let Some(part) = beside.and_then(|empty| figure.part_of(empty)) {
                figure.note("of_empty", rounded(part));
            }
            figure.name.push_str(".filled");
            figures.push(figure);
        }
        self.fill.clear(&place).await?;
        place.leave().await?;
        Ok(figures)
    }
}
