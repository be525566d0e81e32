//! Which actions this host can run, and with what.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use outlast_core::labels::short_digest;
use outlast_packs::{Action, Overlap, Pack, PackSet, Runner};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::containment::Containment;
use crate::runtime::{CommandLine, Interpreters, MissingInterpreter, Runtime, is_program};
use crate::secrets::Secrets;

/// Most actions of which the server learns what is missing for them.
const LACKING_MAX: usize = 100;
/// What is missing when an action's own files are.
const SCRIPT: &str = "the action's script or interpreter";

/// What decides which actions can run here.
#[derive(Debug)]
pub(super) struct ActionHost {
    pub(super) interpreters: RwLock<Interpreters>,
    /// Held by a look for interpreters: one that began with what is known now must not undo what
    /// another one finds meanwhile.
    pub(super) looking: Mutex<()>,
    /// Runtimes to offer; all that are found if empty.
    pub(super) wanted: Vec<Runtime>,
    pub(super) containment: Containment,
    pub(super) secrets: Secrets,
    /// Where built-in packs are written.
    pub(super) packs_folder: PathBuf,
}

impl ActionHost {
    /// The interpreters found when they were looked for last.
    pub(super) fn interpreters(&self) -> Interpreters {
        self.interpreters.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks again for interpreters that are missing or gone. True if that changed what is found.
    pub(super) async fn find_interpreters(&self) -> bool {
        let _one_look = self.looking.lock().await;
        let again = self.interpreters().again().await;
        self.put_interpreters(again)
    }

    /// One of many looks at intervals, for the interpreters that these actions need.
    pub(super) async fn look_for_interpreters(&self, actions: &[Arc<Action>]) {
        let runtimes: BTreeSet<Runtime> =
            actions.iter().map(|action| runtime_of(action.runner)).collect();
        let runtimes: Vec<Runtime> = runtimes.into_iter().collect();
        let _one_look = self.looking.lock().await;
        let look = self.interpreters().look(&runtimes).await;
        self.put_interpreters(look);
    }

    fn put_interpreters(&self, found: Interpreters) -> bool {
        let mut known = self.interpreters.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = known.found() != found.found();
        *known = found;
        is_new
    }

    /// Whether a job of any runtime could be run. Says which runtime is missing if none can.
    ///
    /// # Errors
    /// If not one wanted interpreter is there.
    pub(super) fn runs_anything(&self) -> Result<(), String> {
        let interpreters = self.interpreters();
        if interpreters.found().iter().any(|found| self.wants(found.runtime) && found.is_there()) {
            return Ok(());
        }
        let wanted = Runtime::ALL.into_iter().filter(|runtime| self.wants(*runtime));
        let missing = wanted.map(|runtime| match interpreters.get(runtime) {
            Ok(found) => format!("interpreter {} is gone", found.program.display()),
            Err(missing) => missing.to_string(),
        });
        Err(missing.collect::<Vec<_>>().join("; "))
    }

    /// Why not one action is offered.
    pub(super) fn why_nothing(&self, actions: &Actions) -> String {
        if let Err(missing) = self.runs_anything() {
            return missing;
        }
        let found = actions.runtimes().join(", ");
        let lacking = actions.lacking();
        match lacking {
            [] => format!("the packs hold no enabled action for {found} that can be held here"),
            [first, ..] => format!(
                "each action lacks something, such as {}; the log lines above say what",
                first.reference
            ),
        }
    }

    /// Whether one that was found is gone, or none was found.
    pub(super) fn lacks_interpreters(&self) -> bool {
        let interpreters = self.interpreters();
        let mut found = interpreters.found().iter();
        found.any(|found| self.wants(found.runtime) && !found.is_there())
            || self.runs_anything().is_err()
    }

    fn wants(&self, runtime: Runtime) -> bool {
        self.wanted.is_empty() || self.wanted.contains(&runtime)
    }

    /// Finds script and folder of an action; says what is missing. Built-in ones are written
    /// again when they are needed.
    pub(super) fn find_program(&self, action: &Action) -> Result<(), String> {
        let program = action.program(&self.packs_folder);
        let missing = |what: &str, path: &Path| {
            Err(format!("{what} {} of action {} is missing", path.display(), action.reference))
        };
        if let Some(own) = action.own_interpreter(&self.packs_folder)
            && !is_program(&own)
        {
            return missing("interpreter", &own);
        }
        if program.script.starts_with(&self.packs_folder) {
            return Ok(());
        }
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
        let interpreters = self.interpreters.read().unwrap_or_else(PoisonError::into_inner);
        interpreters.has(runtime_of(action.runner))
            && self.find_program(action).is_ok()
            && self.secrets.resolve(action).is_ok()
    }
}

/// The actions that are offered.
#[derive(Debug)]
pub(super) struct Actions {
    offered: BTreeMap<String, Arc<Action>>,
    /// Those that an interpreter, a secret or a script is missing for.
    lacking: Vec<Arc<Action>>,
    /// What is missing for them, by action, as the server's users read it.
    missing: BTreeMap<String, String>,
    runtimes: Vec<Runtime>,
    interpreters: Interpreters,
    /// The packs, by name.
    packs: BTreeMap<String, PackFacts>,
}

/// What is said about a pack.
#[derive(Clone, Debug)]
struct PackFacts {
    digest: Arc<str>,
    version: Option<String>,
}

impl Actions {
    /// Selects what is enabled, has its runtime here among those wanted (all if none are), can
    /// be held as it needs to be, and gets the secrets that it asks for.
    pub(super) fn select(packs: &PackSet, host: &ActionHost) -> Self {
        let ActionHost { wanted, containment, secrets, .. } = host;
        let (interpreters, containment) = (host.interpreters(), *containment);
        let (mut lacking, mut missing_for) = (Vec::new(), BTreeMap::new());
        let runtimes: Vec<Runtime> = Runtime::ALL
            .into_iter()
            .filter(|runtime| host.wants(*runtime))
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
            let runtime = runtime_of(action.runner);
            if !runtimes.contains(&runtime) {
                lacking.extend(packs.shared(&action.reference).filter(|_| host.wants(runtime)));
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
            if let Err(error) = secrets.resolve(action) {
                tracing::warn!(action = action.reference, "action not offered: {error}");
                missing_for.insert(action.reference.clone(), error.in_short());
                lacking.extend(packs.shared(&action.reference));
                continue;
            }
            if let Err(missing) = host.find_program(action) {
                tracing::warn!(action = action.reference, "action not offered: {missing}");
                missing_for.insert(action.reference.clone(), SCRIPT.to_owned());
                lacking.extend(packs.shared(&action.reference));
                continue;
            }
            if let Some(shared) = packs.shared(&action.reference) {
                offered.insert(action.reference.clone(), shared);
            }
        }
        let facts = |pack: &Pack| {
            let (digest, version) = (pack.digest.as_str().into(), pack.version.clone());
            (pack.reference.clone(), PackFacts { digest, version })
        };
        let packs = packs.packs().map(facts).collect();
        Self { offered, lacking, missing: missing_for, runtimes, interpreters, packs }
    }

    /// Those that are not offered for want of an interpreter, a secret or a script.
    pub(super) fn lacking(&self) -> &[Arc<Action>] {
        &self.lacking
    }

    /// Those of before that have lost their script: packs are read without them.
    pub(super) fn lost(&self, host: &ActionHost) -> Vec<Arc<Action>> {
        let known = self.offered.values().chain(&self.lacking);
        known.filter(|action| host.find_program(action).is_err()).cloned().collect()
    }

    /// Keeps looking for those that were lost when the packs were read.
    pub(super) fn remember(&mut self, lost: Vec<Arc<Action>>) {
        for action in lost {
            let is_known = |known: &Arc<Action>| known.reference == action.reference;
            if !self.offered.contains_key(&action.reference) && !self.lacking.iter().any(is_known) {
                self.lacking.push(action);
            }
        }
    }

    /// The same without those that lack something by now; nothing if none does.
    pub(super) fn left(&self, host: &ActionHost) -> Option<Self> {
        let lost = self.offered.values().filter(|action| !host.has_all_of(action));
        let lost: Vec<String> = lost.map(|action| action.reference.clone()).collect();
        (!lost.is_empty()).then(|| self.without(&lost))
    }

    /// The same without these, which lack something.
    pub(super) fn without(&self, lost: &[String]) -> Self {
        let (lost, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.offered.clone().into_iter().partition(|(reference, _)| lost.contains(reference));
        let lacking = self.lacking.iter().cloned().chain(lost.into_values()).collect();
        Self {
            offered: left,
            lacking,
            missing: self.missing.clone(),
            runtimes: self.runtimes.clone(),
            interpreters: self.interpreters.clone(),
            packs: self.packs.clone(),
        }
    }

    pub(super) fn get(&self, reference: &str) -> Option<&Arc<Action>> {
        self.offered.get(reference)
    }

    /// What the files of an action's pack said when it was read; empty if that is not known.
    pub(super) fn digest(&self, action: &Action) -> Arc<str> {
        let pack = action.reference.split_once('.').map_or("", |(pack, _)| pack);
        self.packs.get(pack).map(|facts| Arc::clone(&facts.digest)).unwrap_or_default()
    }

    /// Why an attempt that must run with these files of its pack does not run here: others were read
    /// since this worker was chosen for it.
    pub(super) fn pack_refusal(&self, action: &Action, wanted: &str) -> Option<String> {
        let digest = self.digest(action);
        let own = short_digest(&digest);
        let differs = !wanted.is_empty() && wanted != own;
        differs.then(|| {
            format!("pinned to the files {wanted} of its pack, and this worker has read {own}")
        })
    }

    /// What the server learns about packs and about what is missing.
    pub(super) fn describe(&self) -> Value {
        let packs: Map<String, Value> = self
            .packs
            .iter()
            .map(|(name, PackFacts { digest, version })| {
                (name.clone(), json!({ "digest": &**digest, "version": version }))
            })
            .collect();
        let lacking: BTreeMap<&str, &str> = self
            .lacking
            .iter()
            .filter(|action| !self.offered.contains_key(&action.reference))
            .map(|action| {
                let missing = self.missing.get(&action.reference);
                (action.reference.as_str(), missing.map_or("a program that it needs", |it| it))
            })
            .take(LACKING_MAX)
            .collect();
        json!({ "packs": packs, "lacking": lacking, "interpreters": self.versions() })
    }

    pub(super) fn references(&self) -> impl Iterator<Item = &str> {
        self.offered.keys().map(String::as_str)
    }

    /// The types of jobs that are offered.
    pub(super) fn types(&self) -> Vec<String> {
        self.offered.keys().cloned().collect()
    }

    pub(super) fn runtimes(&self) -> Vec<&'static str> {
        self.runtimes.iter().map(|runtime| runtime.name()).collect()
    }

    /// Finds the interpreter of an action; says what is missing.
    pub(super) fn find_interpreter(&self, action: &Action) -> Result<(), String> {
        let found = self.interpreters.get(runtime_of(action.runner));
        let found = found.map_err(|missing| missing.to_string())?;
        let gone = || format!("interpreter {} is gone", found.program.display());
        found.is_there().then_some(()).ok_or_else(gone)
    }

    /// What each interpreter says its version is.
    pub(super) fn versions(&self) -> BTreeMap<&'static str, String> {
        let offered =
            self.interpreters.found().iter().filter(|found| self.runtimes.contains(&found.runtime));
        offered.map(|found| (found.runtime.name(), found.version.clone())).collect()
    }

    /// Says how to run an action's script, looking programs up in `path`. Built-in packs are in
    /// `built_in`.
    pub(super) fn command_line(
        &self,
        action: &Action,
        built_in: &Path,
        path: &str,
    ) -> Result<CommandLine, MissingInterpreter> {
        let script = action.program(built_in).script;
        let mut line = self.interpreters.command_line(runtime_of(action.runner), &script)?;
        if let Some(own) = action.own_interpreter(built_in) {
            line.program = own;
            return Ok(line);
        }
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
