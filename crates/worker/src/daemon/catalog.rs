//! The actions that the worker offers, and reloading them: on SIGHUP, and when a secret or script
//! disappears or comes back.
//!
//! Running attempts keep what they were started with.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use outlast_packs::{Origin, PackError, PackSet};
use outlast_sdk::Control;
use tokio::sync::Notify;

use super::actions::{ActionHost, Actions};

/// How often a worker that lacks a secret or a script looks for it.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What is offered now, and what decides about it.
#[derive(Debug)]
pub(super) struct Catalog {
    pub(super) folders: Vec<PathBuf>,
    pub(super) host: ActionHost,
    pub(super) offered: RwLock<Option<Arc<Actions>>>,
}

impl Catalog {
    /// The actions offered now.
    pub(super) fn actions(&self) -> Option<Arc<Actions>> {
        self.offered.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Offers what these packs hold.
    pub(super) fn put(&self, packs: PackSet) -> Arc<Actions> {
        let mut actions = Actions::select(&packs, &self.host);
        if let Some(before) = self.actions() {
            actions.remember(&before, &self.host);
        }
        self.offer(actions)
    }

    fn offer(&self, actions: Actions) -> Arc<Actions> {
        let actions = Arc::new(actions);
        let mut offered = self.offered.write().unwrap_or_else(PoisonError::into_inner);
        *offered = Some(Arc::clone(&actions));
        actions
    }

    /// Reloads the packs. If that fails, the current ones stay, except for what is gone from the
    /// disk.
    fn reload(&self) -> Option<Arc<Actions>> {
        let read = || -> Result<PackSet, PackError> {
            let packs = PackSet::load(&self.folders)?;
            packs.materialise(&self.host.packs_folder)?;
            Ok(packs)
        };
        match read() {
            Ok(packs) => {
                say(&packs);
                Some(self.put(packs))
            }
            Err(fault) => {
                tracing::error!("cannot reload packs, keeping the current ones: {fault}");
                let left = self.actions()?.left(&self.host)?;
                Some(self.offer(left))
            }
        }
    }

    /// Whether a secret or a script that was missing is there by now.
    fn has_found_any(&self) -> bool {
        let Some(actions) = self.actions() else { return false };
        actions.lacking().iter().any(|action| self.host.has_all_of(action))
    }
}

/// Logs what an operator should know about the packs.
pub(super) fn say(packs: &PackSet) {
    for pack in packs.packs().filter(|pack| pack.origin == Origin::Replacement) {
        tracing::info!(
            pack = pack.reference,
            "a pack read from a folder replaces the built-in one"
        );
    }
    for fault in packs.faults() {
        tracing::error!("skipped a faulty pack or action: {fault}");
    }
}

/// Reloads the packs on request, and offers the server what they hold.
pub(super) async fn keep(catalog: Arc<Catalog>, control: Control, reload: Arc<Notify>) {
    loop {
        tokio::select! {
            () = reload.notified() => {}
            () = found_any(&catalog) => {}
        }
        let reader = Arc::clone(&catalog);
        // The disk may be slow; heartbeats and attempts must not wait for it.
        let read = tokio::task::spawn_blocking(move || reader.reload()).await;
        if let Ok(Some(actions)) = read {
            let types: Vec<String> = actions.references().map(ToOwned::to_owned).collect();
            tracing::info!(actions = types.len(), "packs reloaded");
            control.offer(types);
        }
    }
}

/// Waits until a missing secret or script is there.
async fn found_any(catalog: &Arc<Catalog>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let looking = Arc::clone(catalog);
        let found = tokio::task::spawn_blocking(move || looking.has_found_any()).await;
        if found.unwrap_or(false) {
            return;
        }
    }
}
