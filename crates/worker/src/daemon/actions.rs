//! Which actions this host can run, and with what.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use outlast_core::labels::short_digest;
use outlast_packs::environment::{EnvironmentKind, EnvironmentState, InUse, PackEnvironment};
use outlast_packs::{Action, Overlap, OwnInterpreter, Pack, PackSet, Runner};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::containment::Containment;
use crate::runtime::{
    CommandLine, Interpreters, MissingInterpreter, Runtime, find_in_path, is_program,
};
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
    /// The PATH that jobs get.
    pub(super) path: String,
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

    /// Finds what an action's script is run with; says what is missing. Built-in scripts are
    /// written again when they are needed.
    pub(super) fn find_program(&self, action: &Action) -> Result<FoundProgram, Missing> {
        let program = action.program(&self.packs_folder);
        let missing = |what: &str, path: &Path| {
            let why =
                format!("{what} {} of action {} is missing", path.display(), action.reference);
            Err(Missing { why, in_short: SCRIPT.to_owned() })
        };
        let environment = environment_of(action)?;
        let own = match action.own_interpreter(&self.packs_folder) {
            None => None,
            Some(OwnInterpreter::At(own)) => {
                let own = behind_link(&own, &program.folder, environment.as_ref()).unwrap_or(own);
                if !is_program(&own) {
                    return missing("interpreter", &own);
                }
                Some(own)
            }
            Some(OwnInterpreter::InPath(name)) => {
                let found = find_in_path(&name, &self.path);
                let absent = || {
                    let (action, path) = (&action.reference, &self.path);
                    let why =
                        format!("interpreter {name} of action {action} is not in PATH {path}");
                    Missing { why, in_short: SCRIPT.to_owned() }
                };
                Some(found.ok_or_else(absent)?)
            }
        };
        if program.script.starts_with(&self.packs_folder) {
            return Ok(FoundProgram { own, environment });
        }
        if !program.folder.is_dir() {
            missing("folder", &program.folder)
        } else if !program.script.is_file() {
            missing("script", &program.script)
        } else {
            Ok(FoundProgram { own, environment })
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

/// What an action's script is run with.
#[derive(Debug)]
pub(super) struct FoundProgram {
    /// The interpreter that the action names, if it names one.
    pub(super) own: Option<PathBuf>,
    /// The environment of its pack, which stays for as long as this is kept.
    pub(super) environment: Option<InUse>,
}

/// What an action needs and this worker lacks.
#[derive(Debug)]
pub(super) struct Missing {
    why: String,
    /// The same as the server's users read it.
    in_short: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Holds the environment that an action runs in, if its pack has one.
fn environment_of(action: &Action) -> Result<Option<InUse>, Missing> {
    let Some(environment) = &action.environment_of_pack else { return Ok(None) };
    environment.enter().map_err(|why| {
        let kind = environment.kind();
        let in_short = format!("its pack's {kind} environment (`outlast packs sync` makes it)");
        Missing { why, in_short }
    })
}

/// The interpreter of an environment by the path that stays when another one takes its place.
fn behind_link(own: &Path, folder: &Path, environment: Option<&InUse>) -> Option<PathBuf> {
    let rest = own.strip_prefix(folder.join(EnvironmentKind::Python.link())).ok()?;
    Some(environment?.folder().join(rest))
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
    /// Environments that offered actions run in although their packs ask for others by now.
    stale: Vec<StaleEnvironment>,
}

/// An environment that is not what its pack asks for.
#[derive(Clone, Debug)]
pub(super) struct StaleEnvironment {
    environment: Arc<PackEnvironment>,
    /// The folder of the one that is stale.
    pub(super) folder: Option<PathBuf>,
    /// What has changed.
    pub(super) why: String,
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
                missing_for.insert(action.reference.clone(), missing.in_short);
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
        let stale = stale_of(offered.values(), &interpreters);
        Self { offered, lacking, missing: missing_for, runtimes, interpreters, packs, stale }
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
            stale: self.stale.clone(),
        }
    }

    /// What is stale about the environment that an action runs in.
    pub(super) fn stale(&self, action: &Action) -> Option<&StaleEnvironment> {
        let its = action.environment_of_pack.as_ref()?;
        self.stale.iter().find(|stale| Arc::ptr_eq(&stale.environment, its))
    }

    /// Whether another environment has taken the place of one that was stale.
    pub(super) fn has_renewed_any(&self) -> bool {
        self.stale.iter().any(|stale| stale.environment.current() != stale.folder)
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
        let stale: Vec<String> = self.stale.iter().map(StaleEnvironment::words).collect();
        json!({
            "packs": packs,
            "lacking": lacking,
            "stale": stale,
            "interpreters": self.versions(),
        })
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

    /// Says how to run an action's script on this host, with its `own` interpreter if it has one.
    pub(super) fn command_line(
        &self,
        action: &Action,
        host: &ActionHost,
        own: Option<PathBuf>,
    ) -> Result<CommandLine, MissingInterpreter> {
        let script = action.program(&host.packs_folder).script;
        let mut line = self.interpreters.command_line(runtime_of(action.runner), &script)?;
        if let Some(own) = own {
            line.program = own;
            return Ok(line);
        }
        // A shell script that asks for no particular shell is written for bash, where there
        // is one.
        if action.interpreter() == "bash"
            && let Some(bash) = find_in_path("bash", &host.path)
        {
            line.program = bash;
        }
        Ok(line)
    }
}

impl StaleEnvironment {
    /// What the server's users read behind the worker's name.
    fn words(&self) -> String {
        let (kind, pack) = (self.environment.kind(), self.environment.pack());
        format!("runs pack {pack} in a stale {kind} environment: {}", self.why)
    }
}

/// The stale ones among the environments of these actions. They are used: most changes do no harm.
fn stale_of<'a>(
    actions: impl Iterator<Item = &'a Arc<Action>>,
    interpreters: &Interpreters,
) -> Vec<StaleEnvironment> {
    let mut looked_at: Vec<&Arc<PackEnvironment>> = Vec::new();
    let mut stale = Vec::new();
    for action in actions {
        let Some(environment) = &action.environment_of_pack else { continue };
        if looked_at.iter().any(|it| Arc::ptr_eq(it, environment)) {
            continue;
        }
        looked_at.push(environment);
        // A virtual environment brings its own interpreter.
        let is_own = action.own_interpreter.is_some();
        let of_worker = interpreters.get(runtime_of(action.runner)).ok().filter(|_| !is_own);
        let folder = environment.current();
        let version = of_worker.map(|interpreter| interpreter.version.as_str());
        if let EnvironmentState::Stale(why) = environment.state(version) {
            let remedy = environment.remedy();
            tracing::warn!("{}: {remedy}", environment.says(&format!("is stale: {why}")));
            stale.push(StaleEnvironment { environment: Arc::clone(environment), folder, why });
        }
    }
    stale
}

pub(super) const fn runtime_of(runner: Runner) -> Runtime {
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
