//! Which actions this host can run, and with what.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outlast_packs::{Action, Overlap, PackSet, Runner};

use crate::containment::Containment;
use crate::runtime::{CommandLine, Interpreters, MissingInterpreter, Runtime};
use crate::secrets::Secrets;

/// What decides which actions can run here.
#[derive(Debug)]
pub(super) struct ActionHost {
    pub(super) interpreters: Interpreters,
    /// Runtimes to offer; all that are found if empty.
    pub(super) wanted: Vec<Runtime>,
    pub(super) containment: Containment,
    pub(super) secrets: Secrets,
    /// Where built-in packs are written.
    pub(super) packs_folder: PathBuf,
}

impl ActionHost {
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

    /// Whether nothing is missing that an action needs.
    pub(super) fn has_all_of(&self, action: &Action) -> bool {
        self.secrets.gather(action).is_ok() && self.find_program(action).is_ok()
    }
}

/// The actions that are offered.
#[derive(Debug)]
pub(super) struct Actions {
    offered: BTreeMap<String, Arc<Action>>,
    /// Those that a secret or a script is missing for.
    lacking: Vec<Arc<Action>>,
    runtimes: Vec<Runtime>,
    interpreters: Interpreters,
    /// Of each pack, by its name.
    digests: BTreeMap<String, Arc<str>>,
}

impl Actions {
    /// Selects what is enabled, has its runtime here among those wanted (all if none are), can
    /// be held as it needs to be, and gets the secrets that it asks for.
    pub(super) fn select(packs: &PackSet, host: &ActionHost) -> Self {
        let ActionHost { interpreters, wanted, containment, secrets, .. } = host;
        let (interpreters, containment) = (interpreters.clone(), *containment);
        let mut lacking = Vec::new();
        let runtimes: Vec<Runtime> = Runtime::ALL
            .into_iter()
            .filter(|runtime| wanted.is_empty() || wanted.contains(runtime))
            .filter(|runtime| match interpreters.get(*runtime) {
                Ok(_) => true,
                Err(missing) => {
                    say_missing(&missing, wanted);
                    false
                }
            })
            .collect();
        let mut offered = BTreeMap::new();
        for action in packs.actions().filter(|action| action.enabled) {
            if !runtimes.contains(&runtime_of(action.runner)) {
                continue;
            }
            if action.overlap == Overlap::Forbidden && !containment.proves_death() {
                tracing::warn!(
                    action = action.reference,
                    %containment,
                    "action not offered: it forbids overlap, and this containment cannot prove that an attempt has ended"
                );
                continue;
            }
            if let Err(error) = secrets.gather(action) {
                tracing::warn!(action = action.reference, "action not offered: {error}");
                lacking.extend(packs.shared(&action.reference));
                continue;
            }
            if let Some(shared) = packs.shared(&action.reference) {
                offered.insert(action.reference.clone(), shared);
            }
        }
        let digests =
            packs.packs().map(|pack| (pack.reference.clone(), pack.digest.as_str().into()));
        Self { offered, lacking, runtimes, interpreters, digests: digests.collect() }
    }

    /// Those that are not offered for want of a secret or a script.
    pub(super) fn lacking(&self) -> &[Arc<Action>] {
        &self.lacking
    }

    /// Keeps looking for those that were there before and have lost their script: packs are read
    /// without them.
    pub(super) fn remember(&mut self, before: &Self, host: &ActionHost) {
        let known = before.offered.values().chain(&before.lacking);
        let lost = known.filter(|action| host.find_program(action).is_err());
        self.lacking.extend(lost.cloned());
    }

    /// The same without those that have lost their script; nothing if none has.
    pub(super) fn left(&self, host: &ActionHost) -> Option<Self> {
        let (left, lost): (BTreeMap<_, _>, BTreeMap<_, _>) = self
            .offered
            .clone()
            .into_iter()
            .partition(|(_, action)| host.find_program(action).is_ok());
        if lost.is_empty() {
            return None;
        }
        let lacking = self.lacking.iter().cloned().chain(lost.into_values()).collect();
        Some(Self {
            offered: left,
            lacking,
            runtimes: self.runtimes.clone(),
            interpreters: self.interpreters.clone(),
            digests: self.digests.clone(),
        })
    }

    pub(super) fn get(&self, reference: &str) -> Option<&Arc<Action>> {
        self.offered.get(reference)
    }

    /// What the files of an action's pack said when it was read; empty if that is not known.
    pub(super) fn digest(&self, action: &Action) -> Arc<str> {
        let pack = action.reference.split_once('.').map_or("", |(pack, _)| pack);
        self.digests.get(pack).cloned().unwrap_or_default()
    }

    pub(super) fn references(&self) -> impl Iterator<Item = &str> {
        self.offered.keys().map(String::as_str)
    }

    pub(super) fn runtimes(&self) -> Vec<&'static str> {
        self.runtimes.iter().map(|runtime| runtime.name()).collect()
    }

    /// The interpreters that attempts are run by.
    pub(super) fn programs(&self) -> Vec<PathBuf> {
        let found = self.interpreters.found().iter();
        let offered = found.filter(|found| self.runtimes.contains(&found.runtime));
        offered.map(|found| found.program.clone()).collect()
    }

    /// What each interpreter says its version is.
    pub(super) fn versions(&self) -> BTreeMap<&'static str, String> {
        let offered =
            self.interpreters.found().iter().filter(|found| self.runtimes.contains(&found.runtime));
        offered.map(|found| (found.runtime.name(), found.version.clone())).collect()
    }

    /// Says how to run an action's script, looking programs up in `path`.
    pub(super) fn command_line(
        &self,
        action: &Action,
        script: &Path,
        path: &str,
    ) -> Result<CommandLine, MissingInterpreter> {
        let mut line = self.interpreters.command_line(runtime_of(action.runner), script)?;
        // A shell script that asks for no particular shell is written for bash, where there
        // is one.
        if action.interpreter() == "bash"
            && let Some(bash) = std::env::split_paths(OsStr::new(path))
                .map(|folder| folder.join("bash"))
                .find(|bash| bash.is_absolute() && bash.is_file())
        {
            line.program = bash;
        }
        Ok(line)
    }
}

const fn runtime_of(runner: Runner) -> Runtime {
    match runner {
        Runner::Shell => Runtime::Shell,
        Runner::Python => Runtime::Python,
        Runner::Node => Runtime::Node,
    }
}

/// One that was asked for by name and is missing is worth a warning.
fn say_missing(missing: &MissingInterpreter, wanted: &[Runtime]) {
    if wanted.is_empty() {
        tracing::info!("runtime not offered: {missing}");
    } else {
        tracing::warn!("runtime not offered: {missing}");
    }
}
