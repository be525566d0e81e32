//! What tests ask of a store beside the contract.

use outlast_store::command::ClassId;

use super::{Inner, PostgresStore};
use crate::connect::{Address, Plans};
use crate::floors::Place;
use crate::read::Readers;
use crate::writer::Writer;

impl PostgresStore {
    /// Returns every statement that the writer's present connection has run, so that their
    /// plans can be looked at.
    #[doc(hidden)]
    pub async fn writer_statements(&self) -> Vec<&'static str> {
        let mut all = Vec::new();
        for writer in [&self.inner.writers[0], &self.inner.pruner] {
            all.extend(writer.lock().await.iter().flat_map(Writer::statements));
        }
        all
    }

    /// Returns every statement that readers have run, so that their plans can be looked at.
    #[doc(hidden)]
    #[must_use]
    pub fn reader_statements(&self) -> Vec<String> {
        let Inner { readers, background, lookers, workflows, .. } = &*self.inner;
        [readers, background, lookers, workflows].map(Readers::statements).concat()
    }

    /// Returns the settings of a reader's connection.
    #[doc(hidden)]
    #[must_use]
    pub fn reader_settings(&self) -> String {
        Address::reader_settings(Plans::ForValues)
    }

    /// Returns how often a batch failed, whether the writer tried it again or gave it up.
    #[doc(hidden)]
    pub async fn tried_again(&self) -> u64 {
        let writer = self.inner.writers[0].lock().await;
        writer.as_ref().map_or(0, Writer::tried_again)
    }

    /// Returns how often the writer's present connection was asked.
    #[doc(hidden)]
    pub async fn round_trips(&self) -> u64 {
        let writer = self.inner.writers[0].lock().await;
        writer.as_ref().map_or(0, Writer::round_trips)
    }

    /// Whether scans of claimable jobs begin at floors.
    #[doc(hidden)]
    #[must_use]
    pub fn has_floors(&self) -> bool {
        self.inner.floors.ready.are_in_force()
    }

    /// Whether a claim from the class would read the place of a job.
    #[doc(hidden)]
    #[must_use]
    pub fn reads_place(&self, class: ClassId, rank: i64, seq: i64) -> bool {
        self.inner.floors.ready.covers(class.0, Place { rank, seq })
    }

    /// Returns how many statements the writer's present connection was sent.
    #[doc(hidden)]
    pub async fn statements_sent(&self) -> u64 {
        let writer = self.inner.writers[0].lock().await;
        writer.as_ref().map_or(0, Writer::statements_sent)
    }

    /// Returns the settings of the writer's connection.
    #[doc(hidden)]
    #[must_use]
    pub fn writer_settings(&self) -> String {
        self.inner.address.writer_settings()
    }
}
