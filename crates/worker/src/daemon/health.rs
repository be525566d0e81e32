//! Faults of the worker and its host: no process, descriptor, memory or disk space left, no
//! interpreter at all. They are never charged to a job.
//!
//! ```text
//! fault ──▶ quiet, with the reason ──wait──▶ check ──▶ recovered: takes work again
//!                      ▲                       │
//!                      └──── twice as long ◀───┘ not yet
//! ```

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::catalog::Catalog;
use super::complaints::{Complaints, Source};
use super::cover::Cover;
use super::disk::DiskThreads;
use crate::OwnProgram;
use crate::containment::{Choice, Containment};
use crate::probe::Probe;

/// The wait before the first check. It doubles with each fault until an attempt has run.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// What a check writes: as much as parameters and a small result take.
const TRIAL_BYTES: usize = 256 * 1024;

/// Checks what attempts need from the host. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Health(Arc<Needs>);

/// What every attempt needs.
#[derive(Debug)]
pub(super) struct Needs {
    pub(super) complaints: Complaints,
    pub(super) disk: DiskThreads,
    /// What holds jobs: those that forbid overlap, and all others.
    pub(super) containments: [Containment; 2],
    pub(super) program: OwnProgram,
    pub(super) cover: Cover,
    pub(super) catalog: Arc<Catalog>,
    /// Asks for the packs to be reloaded.
    pub(super) reload: Arc<Notify>,
    pub(super) folder: PathBuf,
    pub(super) state: State,
}

/// How it stands.
#[derive(Debug, Default)]
pub(super) struct State {
    checking: AtomicBool,
    faults: AtomicU32,
}

impl Health {
    pub(super) fn new(needs: Needs) -> Self {
        Self(Arc::new(needs))
    }

    pub(super) fn complaints(&self) -> &Complaints {
        &self.0.complaints
    }

    /// An attempt ran: the fault is over.
    pub(super) fn recovered(&self) {
        self.0.state.faults.store(0, Ordering::Relaxed);
    }

    /// Nothing can run here at present.
    pub(super) fn fault(&self, reason: &str) {
        self.0.complaints.raise(Source::Host, reason);
        if !self.0.state.checking.swap(true, Ordering::AcqRel) {
            tokio::spawn(self.clone().until_recovered());
        }
    }

    async fn until_recovered(self) {
        let Needs { complaints, state, .. } = &*self.0;
        loop {
            let faults = state.faults.fetch_add(1, Ordering::Relaxed);
            let wait = WAIT_FIRST.saturating_mul(2_u32.saturating_pow(faults.min(8)));
            tokio::time::sleep(wait.min(WAIT_MAX)).await;
            match self.check().await {
                Ok(()) => break,
                Err(reason) => {
                    tracing::warn!(reason, "worker has not recovered yet");
                    complaints.raise(Source::Host, &reason);
                }
            }
        }
        state.checking.store(false, Ordering::Release);
        complaints.withdraw(Source::Host);
    }

    async fn check(&self) -> Result<(), String> {
        let needs = Arc::clone(&self.0);
        let found = self.0.disk.read(move || needs.look()).await;
        found.unwrap_or_else(|| Err("the worker's reader has died".to_owned()))?;
        let Needs { containments: [chosen, ordinary], program, cover, .. } = &*self.0;
        for kind in [Some(chosen), Some(ordinary).filter(|kind| *kind != chosen)] {
            let Some(kind) = kind else { continue };
            let probe = Probe::hiding(Choice::Forced(*kind), program, &cover.now()).await;
            probe.map_err(|error| error.to_string())?;
        }
        self.find_interpreters().await
    }

    /// One that is gone may have been replaced by another: the actions are offered again with it,
    /// and those without any are not.
    async fn find_interpreters(&self) -> Result<(), String> {
        let Needs { catalog, reload, .. } = &*self.0;
        if catalog.host.lacks_interpreters() && catalog.host.find_interpreters().await {
            reload.notify_one();
        }
        catalog.host.runs_anything()
    }
}

impl Needs {
    fn look(&self) -> Result<(), String> {
        self.try_the_disk().map_err(|error| {
            format!("work folder {} cannot be written: {error}", self.folder.display())
        })
    }

    fn try_the_disk(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join("self-check");
        let written = fs::write(&path, vec![0_u8; TRIAL_BYTES]);
        let removed = fs::remove_file(&path);
        written.and(removed)
    }
}
