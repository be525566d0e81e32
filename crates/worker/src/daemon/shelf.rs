//! The actions that the worker offers, and reading them again: on SIGHUP, and when a secret or
//! script is missing or there again.
//!
//! Attempts that run go on with what they were started with.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use outlast_packs::{Action, Origin, PackError, PackSet};
use outlast_sdk::Control;
use tokio::sync::Notify;

use super::actions::Actions;
use crate::containment::Containment;
use crate::runtime::{Interpreters, Runtime};
use crate::secrets::Secrets;

/// How often a worker that lacks a secret or a script looks for it.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What is offered now, and what decides about it.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) folders: Vec<PathBuf>,
    pub(super) interpreters: Interpreters,
    pub(super) wanted: Vec<Runtime>,
    pub(super) containment: Containment,
    pub(super) secrets: Secrets,
    pub(super) packs_folder: PathBuf,
    pub(super) offered: RwLock<Option<Arc<Actions>>>,
}

impl Shelf {
    /// The actions offered now.
    pub(super) fn actions(&self) -> Option<Arc<Actions>> {
        self.offered.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Offers what these packs hold.
    pub(super) fn put(&self, packs: PackSet) -> Arc<Actions> {
        let mut actions = Actions::select(&packs, self);
        if let Some(before) = self.actions() {
            actions.remember(&before, self);
        }
        self.offer(actions)
    }

    fn offer(&self, actions: Actions) -> Arc<Actions> {
        let actions = Arc::new(actions);
        let mut offered = self.offered.write().unwrap_or_else(PoisonError::into_inner);
        *offered = Some(Arc::clone(&actions));
        actions
    }

    /// Finds script and folder of an action; says what is missing. Built-in ones are written
    /// again when they are needed.
    pub(super) fn find_program(&self, action: &Action) -> Result<(), String> {
        let program = action.program(&self.packs_folder);
        if program.script.starts_with(&self.packs_folder) {
            return Ok(());
        }
        let missing = |what: &str, path: &Path| {
            Err(format!("{what} {} of action {} is missing", path.display(), action.reference))
        };
        if !program.folder.is_dir() {
            missing("folder", &program.folder)
        } else if !program.script.is_file() {
            missing("script", &program.script)
        } else {
            Ok(())
        }
    }

    /// Reads the packs again. When that cannot be done, those that are offered stay, but for
    /// what is gone from the disk.
    fn read_again(&self) -> Option<Arc<Actions>> {
        let read = || -> Result<PackSet, PackError> {
            let packs = PackSet::load(&self.folders)?;
            packs.materialise(&self.packs_folder)?;
            Ok(packs)
        };
        match read() {
            Ok(packs) => {
                say(&packs);
                Some(self.put(packs))
            }
            Err(fault) => {
                tracing::error!("packs stay as they were: {fault}");
                let left = self.actions()?.left(self)?;
                Some(self.offer(left))
            }
        }
    }

    /// Whether a secret or a script that was missing is there by now.
    fn has_found_any(&self) -> bool {
        let Some(actions) = self.actions() else { return false };
        actions
            .lacking()
            .iter()
            .any(|action| self.secrets.gather(action).is_ok() && self.find_program(action).is_ok())
    }
}

/// Says what an operator should know about packs that were read.
pub(super) fn say(packs: &PackSet) {
    for pack in packs.packs().filter(|pack| pack.origin == Origin::Replacement) {
        tracing::info!(
            pack = pack.reference,
            "a pack read from a folder replaces the built-in one"
        );
    }
    for fault in packs.faults() {
        tracing::error!("left out of the packs: {fault}");
    }
}

/// Reads the packs again whenever that is asked for, and offers the server what they hold.
pub(super) async fn keep(shelf: Arc<Shelf>, control: Control, again: Arc<Notify>) {
    loop {
        tokio::select! {
            () = again.notified() => {}
            () = found_any(&shelf) => {}
        }
        let reader = Arc::clone(&shelf);
        // The disk may be slow; heartbeats and attempts must not wait for it.
        let read = tokio::task::spawn_blocking(move || reader.read_again()).await;
        if let Ok(Some(actions)) = read {
            let types: Vec<String> = actions.references().map(ToOwned::to_owned).collect();
            tracing::info!(actions = types.len(), "packs were read again");
            control.offer(types);
        }
    }
}

/// Waits until a missing secret or script is there.
async fn found_any(shelf: &Arc<Shelf>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let looking = Arc::clone(shelf);
        let found = tokio::task::spawn_blocking(move || looking.has_found_any()).await;
        if found.unwrap_or(false) {
            return;
        }
    }
}
