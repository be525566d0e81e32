//! One pack: its `pack.yaml`, its actions and workflows, notes and faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::action::{Action, InLanguage, PackFile, Reading, Runner, WarmSpec, is_name, warm};
use crate::digest;
use crate::environment::{EnvironmentKind, PackEnvironment};
use crate::error::PackError;
use crate::keys;
use crate::note::Note;
use crate::source::Source;
use crate::workflow::{self, Workflow};
use crate::yaml::{At, Document, line};

/// A folder of actions and workflows with a name.
#[derive(Debug)]
#[non_exhaustive]
pub struct Pack {
    /// The name that begins every action's reference, such as `core`.
    pub reference: String,
    /// Its display name.
    pub label: String,
    /// What the pack is for.
    pub description: String,
    /// The pack's own version.
    pub version: Option<String>,
    /// Whether its actions may run.
    pub enabled: bool,
    /// Tags to search by.
    pub tags: Vec<String>,
    /// Where it is from.
    pub origin: Origin,
    /// SHA-256 of its files in hexadecimal: the same files have the same digest.
    pub digest: String,
    actions: Vec<Arc<Action>>,
    environments: Vec<Arc<PackEnvironment>>,
    workflows: Vec<Arc<Workflow>>,
    notes: Vec<Note>,
    faults: Vec<(String, Arc<PackError>)>,
    workflow_faults: Vec<(String, Arc<PackError>)>,
}

/// Where a pack is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Part of the binary.
    BuiltIn,
    /// Read from a folder.
    Folder,
    /// Read from a folder, in place of the built-in pack of the same name.
    Replacement,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "ref")]
    reference: At<String>,
    label: Option<String>,
    description: Option<String>,
    version: Option<String>,
    enabled: Option<bool>,
    tags: Option<Vec<String>>,
    python: Option<String>,
    node: Option<String>,
    warm: At<Value>,
}

/// What the actions of a pack have from its `pack.yaml`, unless their own files say otherwise.
#[derive(Clone, Copy)]
struct OfPack<'a> {
    python: InLanguage<'a>,
    node: InLanguage<'a>,
    warm: Option<&'a WarmSpec>,
}

/// Folders and files that other systems act on and this one does not.
const PASSED_OVER: &[&str] = &[
    "sensors",
    "triggers",
    "rules",
    "policies",
    "queues",
    "runtimes",
    "permission_sets",
    "permissions",
    "config.schema.yaml",
];

impl Pack {
    /// The actions, in the order of their files' names.
    #[must_use]
    pub fn actions(&self) -> &[Arc<Action>] {
        &self.actions
    }

    /// The environments that actions of the pack run in.
    #[must_use]
    pub fn environments(&self) -> &[Arc<PackEnvironment>] {
        &self.environments
    }

    /// The workflows, in the order of their files' names.
    #[must_use]
    pub fn workflows(&self) -> &[Arc<Workflow>] {
        &self.workflows
    }

    /// What the pack contains that has no effect here.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Actions and workflows that are left out, by reference, and what is wrong with them.
    pub fn faults(&self) -> impl Iterator<Item = (&str, &PackError)> {
        self.faults_of_actions().chain(self.faults_of_workflows())
    }

    pub(crate) fn faults_of_actions(&self) -> impl Iterator<Item = (&str, &PackError)> {
        self.faults.iter().map(|(name, fault)| (name.as_str(), fault.as_ref()))
    }

    pub(crate) fn faults_of_workflows(&self) -> impl Iterator<Item = (&str, &PackError)> {
        self.workflow_faults.iter().map(|(name, fault)| (name.as_str(), fault.as_ref()))
    }

    /// Leaves out a workflow that was read, and says why.
    pub(crate) fn leave_out(&mut self, workflow: &str, fault: PackError) {
        self.workflows.retain(|it| it.reference != workflow);
        self.workflow_faults.push((workflow.to_owned(), Arc::new(fault)));
    }

    pub(crate) fn note(&mut self, note: Note) {
        self.notes.push(note);
    }

    pub(crate) fn read(source: &Source) -> Result<Self, PackError> {
        let file = source.label("pack.yaml");
        let text = source.text("pack.yaml")?.ok_or_else(|| {
            PackError::new(file.clone(), "file is missing", "a pack needs a pack.yaml with a ref")
        })?;
        let document = Document::new(file, text);
        let keys = document.mapping()?;
        let manifest: Manifest = document.read()?;
        let reference = reference(&document, &manifest)?;
        let warm = manifest.warm.as_ref().map_or(Ok(None), |given| {
            warm::read(&document, given, &[Runner::Python, Runner::Node])
        })?;
        let mut notes = document.check_keys(&keys, &keys::PACK)?;
        // A folder that cannot be listed is noted with the digest.
        notes.extend(passed_over(source).unwrap_or_default());
        let (digest, unread) = digest::of(source)?;
        notes.extend(unread);

        let mut pack = Self {
            label: manifest.label.unwrap_or_else(|| reference.clone()),
            reference,
            description: manifest.description.unwrap_or_default(),
            version: manifest.version,
            enabled: manifest.enabled.unwrap_or(true),
            tags: manifest.tags.unwrap_or_default(),
            origin: match source {
                Source::Embedded(_) => Origin::BuiltIn,
                Source::Folder { .. } => Origin::Folder,
            },
            actions: Vec::new(),
            environments: Vec::new(),
            workflows: Vec::new(),
            notes,
            faults: Vec::new(),
            workflow_faults: Vec::new(),
            digest,
        };
        let python = pack.asked(source, EnvironmentKind::Python);
        let node = pack.asked(source, EnvironmentKind::Node);
        let language = |own, environment| InLanguage { own, environment };
        let python_of_pack = language(manifest.python.as_deref(), python.as_ref());
        let node_of_pack = language(manifest.node.as_deref(), node.as_ref());
        let of_pack = OfPack { python: python_of_pack, node: node_of_pack, warm: warm.as_ref() };
        pack.read_actions(source, of_pack)?;
        let note_of_warm = pack.note_of_warm(document.file(), warm.as_ref());
        pack.notes.extend(note_of_warm);
        for environment in [python, node].into_iter().flatten() {
            pack.keep_if_used(source, environment);
        }
        pack.read_workflows(source)?;
        Ok(pack)
    }

    /// Notes that this pack, whose manifest is `file`, replaces the built-in one.
    pub(crate) fn replace(&mut self, built_in: &Self, file: &str) {
        self.origin = Origin::Replacement;
        let here =
            |action: &&Arc<Action>| !self.actions.iter().any(|a| a.reference == action.reference);
        let gone: Vec<&str> =
            built_in.actions.iter().filter(here).map(|action| action.reference.as_str()).collect();
        let mut message = format!("replaces the built-in pack {} as a whole", self.reference);
        if !gone.is_empty() {
            message.push_str(", without ");
            message.push_str(&gone.join(", "));
        }
        self.notes.insert(0, Note::new(file, message));
    }

    /// What is odd about the key `warm` in the pack's own file.
    fn note_of_warm(&self, file: &str, warm: Option<&WarmSpec>) -> Option<Note> {
        let warm = warm?;
        let uses = |runner: Runner| {
            let mut actions = self.actions.iter().filter(|action| action.runner == runner);
            actions.any(|action| action.warm.as_ref() == Some(warm))
        };
        let message = match (uses(Runner::Python), uses(Runner::Node)) {
            (false, false) => {
                "key `warm` has no effect: no Python or Node.js action of the pack uses it"
            }
            (true, true) if !warm.preload.is_empty() => {
                "key `warm`: its `preload` is for Python and Node.js actions alike; give one of them \
                 a list of its own"
            }
            _ => return None,
        };
        Some(Note::new(file, message))
    }

    /// The environment that the pack asks for in one language.
    fn asked(&mut self, source: &Source, kind: EnvironmentKind) -> Option<Arc<PackEnvironment>> {
        let asked = PackEnvironment::of(source, &self.reference, kind);
        self.notes.extend(asked.note);
        asked.environment.map(Arc::new)
    }

    fn keep_if_used(&mut self, source: &Source, environment: Arc<PackEnvironment>) {
        let uses = |action: &Arc<Action>| {
            let its = action.environment_of_pack.as_ref();
            its.is_some_and(|it| Arc::ptr_eq(it, &environment))
        };
        if self.actions.iter().any(uses) {
            self.environments.push(environment);
            return;
        }
        let message =
            format!("has no effect: no action runs in a {} environment", environment.kind());
        self.notes.push(Note::new(&source.label(environment.manifest().file()), message));
    }

    fn read_actions(&mut self, source: &Source, of_pack: OfPack<'_>) -> Result<(), PackError> {
        let OfPack { python, node, warm } = of_pack;
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        for (stem, path) in definitions(source, "actions")? {
            let (reference, enabled) = (self.reference.as_str(), self.enabled);
            let pack = PackFile { reference, enabled, python, node, warm };
            let read = source.text(&path).and_then(|text| {
                let Some(text) = text else { return Ok(None) };
                let document = Document::new(source.label(&path), text);
                Reading { source, document: &document, pack, stem: &stem }.action().map(Some)
            });
            match read {
                Ok(None) => {}
                Ok(Some(read)) => {
                    self.notes.extend(read.notes);
                    let Some(action) = read.action else { continue };
                    let reference = action.reference.clone();
                    if let Some(first) = files.get(&reference) {
                        let fault = PackError::new(
                            source.label(&path),
                            format!("action `{reference}` is already defined by {first}"),
                            "give one of them another ref",
                        );
                        self.faults.push((format!("{}.{stem}", self.reference), Arc::new(fault)));
                        continue;
                    }
                    files.insert(reference, source.label(&path));
                    self.actions.push(Arc::new(action));
                }
                // One faulty action must not disable the others.
                Err(fault) => {
                    let name = format!("{}.{stem}", self.reference);
                    self.faults.push((name, Arc::new(fault)));
                }
            }
        }
        Ok(())
    }

    fn read_workflows(&mut self, source: &Source) -> Result<(), PackError> {
        for (stem, path) in definitions(source, "workflows")? {
            match self.read_workflow(source, &stem, &path) {
                Ok(None) => {}
                Ok(Some(workflow)) => self.workflows.push(Arc::new(workflow)),
                // One faulty workflow must not disable the others.
                Err(fault) => {
                    let name = format!("{}.{stem}", self.reference);
                    self.workflow_faults.push((name, Arc::new(fault)));
                }
            }
        }
        Ok(())
    }

    fn read_workflow(
        &mut self,
        source: &Source,
        stem: &str,
        path: &str,
    ) -> Result<Option<Workflow>, PackError> {
        let Some(text) = source.text(path)? else { return Ok(None) };
        let document = Document::new(source.label(path), text);
        let read = workflow::read(&document, &self.reference, self.enabled, stem)?;
        self.notes.extend(read.notes);
        let Some(workflow) = read.workflow else { return Ok(None) };
        let is_known = |other: &&Arc<Workflow>| other.reference == workflow.reference;
        if let Some(first) = self.workflows.iter().find(is_known) {
            return Err(document.fault(
                document.line_at("name"),
                format!("workflow `{}` is already defined by {}", first.reference, first.file),
                "give one of them another name",
            ));
        }
        Ok(Some(workflow))
    }
}

/// The YAML files of a folder of the pack: names without ending, and paths.
fn definitions(source: &Source, folder: &str) -> Result<Vec<(String, String)>, PackError> {
    let names = source.names(folder)?.into_iter();
    let found = names.filter_map(|name| {
        let stem = name.strip_suffix(".yaml").or_else(|| name.strip_suffix(".yml"))?;
        Some((stem.to_owned(), format!("{folder}/{name}")))
    });
    Ok(found.collect())
}

fn reference(document: &Document, manifest: &Manifest) -> Result<String, PackError> {
    const REMEDY: &str =
        "write `ref: my_pack`: lower-case letters, digits, hyphens and underscores";
    let Some(reference) = &manifest.reference else {
        return Err(document.fault(None, "key `ref` is missing", REMEDY));
    };
    if is_name(&reference.value) {
        return Ok(reference.value.clone());
    }
    let problem = format!("ref `{}` is not a pack's name", reference.value);
    Err(document.fault(line(reference), problem, REMEDY))
}

fn passed_over(source: &Source) -> Result<Vec<Note>, PackError> {
    let names = source.names("")?;
    let found = PASSED_OVER.iter().filter(|passed| names.iter().any(|name| name == *passed));
    Ok(found.map(|passed| Note::new(&source.label(passed), "has no effect")).collect())
}
