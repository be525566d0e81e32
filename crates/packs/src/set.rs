//! All packs together: the built-in one and those in folders.

mod workflows;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use include_dir::{Dir, include_dir};

use crate::action::Action;
use crate::error::PackError;
use crate::keys::nearest;
use crate::pack::{Origin, Pack};
use crate::source::Source;
use crate::workflow::Workflow;

/// The built-in pack's files.
pub(crate) static CORE: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../packs/core");

/// Every pack that was read, and every action and workflow by its reference.
#[derive(Debug, Clone, Default)]
pub struct PackSet {
    packs: Vec<Arc<Pack>>,
    actions: BTreeMap<String, Arc<Action>>,
    workflows: BTreeMap<String, Arc<Workflow>>,
    /// Packs that were left out: their names, and what is wrong.
    faulty: Vec<(String, Arc<PackError>)>,
}

impl PackSet {
    /// The built-in pack alone.
    ///
    /// # Errors
    /// When the binary was built from a faulty pack, which a test prevents.
    pub fn embedded_core() -> Result<Self, PackError> {
        let mut set = Self::default();
        set.add(&Source::Embedded(&CORE))?;
        debug_assert_eq!(set.faults().count(), 0, "the built-in pack is faulty");
        Ok(set)
    }

    /// The built-in pack and those in `folders`: each is one pack, or holds packs.
    ///
    /// A pack with the name of a built-in one replaces it as a whole; actions of the two are not
    /// mixed. [`Pack::origin`] and a note say so.
    ///
    /// A faulty pack, action or workflow is left out and does not stop the others; see
    /// [`faults`](Self::faults).
    ///
    /// # Errors
    /// When a folder that was named cannot be read, or holds no pack.
    pub fn load(folders: &[PathBuf]) -> Result<Self, PackError> {
        let mut set = Self::embedded_core()?;
        let mut seen = Vec::new();
        for folder in folders {
            for source in sources(folder)? {
                let Source::Folder { real, .. } = &source else { continue };
                // The same folder named twice is a slip, not a conflict.
                if !seen.contains(real) {
                    seen.push(real.clone());
                    if let Err(fault) = set.add(&source) {
                        set.faulty.push((source.presumed_name(), Arc::new(fault)));
                    }
                }
            }
        }
        set.check_workflows();
        Ok(set)
    }

    /// The action of a reference such as `core.echo`, switched off or not.
    #[must_use]
    pub fn get(&self, reference: &str) -> Option<&Action> {
        self.actions.get(reference).map(Arc::as_ref)
    }

    /// The same, to be kept beyond the set's life.
    #[must_use]
    pub fn shared(&self, reference: &str) -> Option<Arc<Action>> {
        self.actions.get(reference).cloned()
    }

    /// Every action, by reference.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.actions.values().map(Arc::as_ref)
    }

    /// The workflow of a reference such as `reports.nightly`, switched off or not.
    #[must_use]
    pub fn workflow(&self, reference: &str) -> Option<&Arc<Workflow>> {
        self.workflows.get(reference)
    }

    /// Every workflow, by reference.
    pub fn workflows(&self) -> impl Iterator<Item = &Arc<Workflow>> {
        self.workflows.values()
    }

    /// Every pack, in the order in which they were read; the built-in one first, if it is there.
    pub fn packs(&self) -> impl Iterator<Item = &Pack> {
        self.packs.iter().map(Arc::as_ref)
    }

    /// What is wrong with packs, actions and workflows that were left out.
    pub fn faults(&self) -> impl Iterator<Item = &PackError> {
        let of_parts = self.packs.iter().flat_map(|pack| pack.faults().map(|(_, fault)| fault));
        let of_packs = self.faulty_packs().map(|(_, fault)| fault);
        of_packs.chain(of_parts)
    }

    /// Packs that were left out as a whole, each with its presumed name and what is wrong with it.
    pub fn faulty_packs(&self) -> impl Iterator<Item = (&str, &PackError)> {
        self.faulty.iter().map(|(name, fault)| (name.as_str(), fault.as_ref()))
    }

    /// What is wrong with the file of an action, or with its pack, if it was left out for that.
    #[must_use]
    pub fn fault_of(&self, reference: &str) -> Option<&PackError> {
        let mut faults = self.packs.iter().flat_map(|pack| pack.faults_of_actions());
        let of_action = faults.find(|(name, _)| *name == reference);
        of_action.map(|(_, fault)| fault).or_else(|| self.fault_of_pack(reference))
    }

    fn fault_of_pack(&self, reference: &str) -> Option<&PackError> {
        let pack = reference.split('.').next().unwrap_or_default();
        self.faulty_packs().find(|(name, _)| *name == pack).map(|(_, fault)| fault)
    }

    /// The action that was most likely meant by a reference that names none.
    #[must_use]
    pub fn nearest(&self, reference: &str) -> Option<&str> {
        nearest(reference, self.actions.keys().map(String::as_str))
    }

    fn add(&mut self, source: &Source) -> Result<(), PackError> {
        let mut pack = Pack::read(source)?;
        if let Some(at) = self.packs.iter().position(|other| other.reference == pack.reference) {
            if self.packs[at].origin != Origin::BuiltIn {
                return Err(PackError::new(
                    source.label("pack.yaml"),
                    format!("pack `{}` is already read from another folder", pack.reference),
                    "give the pack another ref, or leave one of them out",
                ));
            }
            let built_in = self.packs.remove(at);
            self.actions.retain(|_, action| action.pack != built_in.reference);
            self.workflows.retain(|_, workflow| workflow.pack != built_in.reference);
            pack.replace(&built_in, &source.label("pack.yaml"));
        }
        // References begin with their pack's name, and a pack has each only once.
        let actions = pack.actions().iter();
        self.actions.extend(actions.map(|action| (action.reference.clone(), Arc::clone(action))));
        let workflows = pack.workflows().iter();
        self.workflows.extend(workflows.map(|it| (it.reference.clone(), Arc::clone(it))));
        self.packs.push(Arc::new(pack));
        Ok(())
    }
}

/// The packs in a folder that the user named.
fn sources(folder: &Path) -> Result<Vec<Source>, PackError> {
    let file = || folder.display().to_string();
    let found =
        fs::metadata(folder).map_err(|source| PackError::io(file(), "find pack folder", source))?;
    let remedy = "name a folder with a pack.yaml, or one that holds such folders";
    if !found.is_dir() {
        return Err(PackError::new(file(), "not a folder", remedy));
    }
    if folder.join("pack.yaml").exists() {
        return Ok(vec![Source::folder(folder)?]);
    }
    let listing =
        fs::read_dir(folder).map_err(|source| PackError::io(file(), "list folder", source))?;
    let mut inner = Vec::new();
    for entry in listing {
        let entry = entry.map_err(|source| PackError::io(file(), "list folder", source))?;
        if entry.path().join("pack.yaml").exists() {
            inner.push(entry.path());
        }
    }
    inner.sort_unstable();
    if inner.is_empty() {
        return Err(PackError::new(file(), "there is no pack in it", remedy));
    }
    inner.iter().map(|folder| Source::folder(folder)).collect()
}
