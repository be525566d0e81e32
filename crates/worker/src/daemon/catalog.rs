//! The actions that the worker offers, and reloading them: on SIGHUP, and when an interpreter,
//! secret or script disappears or comes back.
//!
//! Running attempts keep what they were started with.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use outlast_packs::{Action, Origin, PackError, PackSet};
use outlast_sdk::Control;
use serde_json::Value;
use tokio::sync::Notify;

use super::actions::{ActionHost, Actions};
use crate::warm::WarmProcesses;

/// How often a worker that lacks an interpreter, a secret or a script looks for it.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What is offered now, and what decides about it.
#[derive(Debug)]
pub(super) struct Catalog {
    pub(super) folders: Vec<PathBuf>,
    pub(super) host: ActionHost,
    pub(super) offered: RwLock<Option<Arc<Actions>>>,
    /// What the server learns about the worker beside its packs, once that is known.
    pub(super) about: OnceLock<Value>,
}

impl Catalog {
    /// The actions offered now.
    pub(super) fn actions(&self) -> Option<Arc<Actions>> {
        self.offered.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Offers what these packs hold. `lost` are those that were missing before they were read:
    /// one that is back since then was not read, and must be looked for again.
    pub(super) fn put(&self, packs: PackSet, lost: Vec<Arc<Action>>) -> Arc<Actions> {
        let mut actions = Actions::select(&packs, &self.host);
        actions.remember(lost);
        actions.remember(self.lost());
        self.offer(actions)
    }

    /// A catalog of these folders that offers nothing yet.
    pub(super) fn new(folders: Vec<PathBuf>, host: ActionHost) -> Self {
        Self { folders, host, offered: RwLock::default(), about: OnceLock::new() }
    }

    /// What the server learns about the worker: JSON.
    pub(super) fn describe(&self, actions: &Actions) -> String {
        let mut about = self.about.get().cloned().unwrap_or_else(|| serde_json::json!({}));
        if let (Some(all), Value::Object(more)) = (about.as_object_mut(), actions.describe()) {
            all.extend(more);
        }
        about.to_string()
    }

    fn lost(&self) -> Vec<Arc<Action>> {
        self.actions().map(|actions| actions.lost(&self.host)).unwrap_or_default()
    }

    fn offer(&self, actions: Actions) -> Arc<Actions> {
        let actions = Arc::new(actions);
        let mut offered = self.offered.write().unwrap_or_else(PoisonError::into_inner);
        *offered = Some(Arc::clone(&actions));
        actions
    }

    /// Stops offering an action at once: reloading the packs takes a while, and jobs that are
    /// handed back until then would come again. `None` if it is not offered any more.
    pub(super) fn withdraw(&self, reference: &str) -> Option<Arc<Actions>> {
        let mut offered = self.offered.write().unwrap_or_else(PoisonError::into_inner);
        let actions = offered.as_ref().filter(|actions| actions.get(reference).is_some())?;
        let actions = Arc::new(actions.without(&[reference.to_owned()]));
        *offered = Some(Arc::clone(&actions));
        Some(actions)
    }

    /// Reloads the packs. If that fails, the current ones stay, except for those that lack
    /// something by now.
    fn reload(&self) -> Option<Arc<Actions>> {
        let read = || -> Result<PackSet, PackError> {
            let packs = PackSet::load(&self.folders)?;
            packs.materialise(&self.host.packs_folder)?;
            Ok(packs)
        };
        let lost = self.lost();
        match read() {
            Ok(packs) => {
                say(&packs);
                Some(self.put(packs, lost))
            }
            Err(fault) => {
                tracing::error!("cannot reload packs, keeping the current ones: {fault}");
                let left = self.actions()?.left(&self.host)?;
                Some(self.offer(left))
            }
        }
    }

    /// Whether what was missing is there by now, or what was stale has been replaced.
    fn has_found_any(&self) -> bool {
        let Some(actions) = self.actions() else { return false };
        actions.has_renewed_any()
            || actions.lacking().iter().any(|action| self.host.has_all_of(action))
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
        tracing::error!("skipped a faulty pack, action or workflow: {fault}");
    }
}

/// What asks for a reload, and what depends on packs.
pub(super) struct Asked {
    pub(super) reload: Arc<Notify>,
    pub(super) warm: WarmProcesses,
}

/// Reloads the packs on request, and offers the server what they hold.
pub(super) async fn keep(catalog: Arc<Catalog>, control: Control, asked: Asked) {
    loop {
        tokio::select! {
            () = asked.reload.notified() => {
                catalog.host.find_interpreters().await;
            }
            () = found_any(&catalog) => {}
        }
        let reader = Arc::clone(&catalog);
        // The disk may be slow; heartbeats and attempts must not wait for it.
        let read = tokio::task::spawn_blocking(move || reader.reload()).await;
        if let Ok(Some(actions)) = read {
            tracing::info!(actions = actions.references().count(), "packs reloaded");
            asked.warm.end_all();
            control.offer(actions.types(), catalog.describe(&actions));
        }
    }
}

/// Waits until something that was missing is there.
async fn found_any(catalog: &Arc<Catalog>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(actions) = catalog.actions() {
            catalog.host.look_for_interpreters(actions.lacking()).await;
        }
        let looking = Arc::clone(catalog);
        let found = tokio::task::spawn_blocking(move || looking.has_found_any()).await;
        if found.unwrap_or(false) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::sync::RwLock;

    use outlast_packs::PackSet;
    use tempfile::TempDir;
    use tokio::sync::Mutex;

    use super::{ActionHost, Catalog};
    use crate::containment::Containment;
    use crate::runtime::{Interpreters, Runtime};
    use crate::secrets::Secrets;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }

    /// Offers `demo.it`, which asks for the secret `key`, from one of two folders.
    async fn catalog(folder: &TempDir) -> Catalog {
        let at = |path: &str| folder.path().join(path);
        write(&at("packs/demo/pack.yaml"), "ref: demo\n");
        let action = "runner_type: shell\nentry_point: it.sh\nsecrets: {KEY: {as: env, from: key}}";
        write(&at("packs/demo/actions/it.yaml"), action);
        write(&at("packs/demo/actions/it.sh"), "#!/bin/sh\n");
        write(&at("more/other/pack.yaml"), "ref: other\n");
        write(&at("secrets/key"), "sesame");
        let host = ActionHost {
            interpreters: RwLock::new(Interpreters::find("/usr/bin:/bin").await),
            looking: Mutex::default(),
            wanted: vec![Runtime::Shell],
            containment: Containment::Pidns,
            secrets: Secrets::new(Some(at("secrets"))),
            path: "/usr/bin:/bin".to_owned(),
            packs_folder: at("built-in"),
        };
        let catalog = Catalog::new(vec![at("packs"), at("more")], host);
        let packs = PackSet::load(&catalog.folders).unwrap();
        assert!(catalog.put(packs, Vec::new()).get("demo.it").is_some());
        catalog
    }

    #[tokio::test]
    async fn an_action_that_is_withdrawn_is_looked_for_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = catalog(&folder).await;
        assert!(!catalog.has_found_any());
        let left = catalog.withdraw("demo.it").unwrap();
        assert!(left.get("demo.it").is_none() && left.get("core.echo").is_some());
        assert!(catalog.withdraw("demo.it").is_none(), "once is enough");
        assert!(catalog.has_found_any());
        assert!(catalog.reload().unwrap().get("demo.it").is_some());
    }

    // It ran with whatever files were there by then.
    #[tokio::test]
    async fn a_job_that_is_pinned_to_files_of_before_a_reload_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = catalog(&folder).await;
        let before = catalog.actions().unwrap();
        let action = before.get("demo.it").unwrap();
        let wanted = before.digest(action)[..12].to_owned();
        assert_eq!(before.pack_refusal(action, &wanted), None);
        assert_eq!(before.pack_refusal(action, ""), None, "it runs with any");
        write(&folder.path().join("packs/demo/actions/it.sh"), "#!/bin/sh\necho two\n");
        let after = catalog.reload().unwrap();
        let why = after.pack_refusal(action, &wanted).unwrap();
        let words = format!("pinned to the files {wanted} of its pack, and this worker has read ");
        assert!(why.starts_with(&words), "{why}");
    }

    // Without its secret an action was offered on, and its jobs came and went.
    #[tokio::test]
    async fn an_action_without_its_secret_is_not_offered_when_packs_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = catalog(&folder).await;
        fs::remove_file(folder.path().join("secrets/key")).unwrap();
        fs::remove_dir_all(folder.path().join("more")).unwrap();
        let left = catalog.reload().unwrap();
        assert!(left.get("demo.it").is_none() && left.get("core.echo").is_some());
        assert!(!catalog.has_found_any());
        write(&folder.path().join("secrets/key"), "again");
        assert!(catalog.has_found_any());
    }

    #[tokio::test]
    async fn an_interpreter_that_is_named_is_looked_up_in_the_path_of_jobs() {
        let folder = tempfile::tempdir().unwrap();
        let tools = folder.path().join("tools");
        let mut catalog = catalog(&folder).await;
        catalog.host.path = tools.display().to_string();
        let put = |name: &str, answer: &str| {
            write(&tools.join(name), &format!("#!/bin/sh\n{answer}\n"));
            fs::set_permissions(tools.join(name), Permissions::from_mode(0o755)).unwrap();
        };
        put("python3", "echo $0\necho 3.9");
        let found = Interpreters::find(&catalog.host.path).await;
        catalog.host.interpreters = RwLock::new(found);
        catalog.host.wanted = vec![Runtime::Python];
        let action = "runner_type: python\nentry_point: it.sh\npython: python9\n";
        write(&folder.path().join("packs/demo/actions/nine.yaml"), action);
        let lacking = catalog.reload().unwrap();
        assert!(lacking.get("demo.nine").is_none() && !catalog.has_found_any());
        let why = catalog.host.find_program(&lacking.lacking()[0]).unwrap_err().to_string();
        assert!(why.starts_with("interpreter python9 of action demo.nine is not in PATH"), "{why}");

        put("python9", "");
        assert!(catalog.has_found_any());
        let actions = catalog.reload().unwrap();
        let nine = actions.get("demo.nine").unwrap();
        let own = catalog.host.find_program(nine).unwrap().own;
        let line = actions.command_line(nine, &catalog.host, own).unwrap();
        assert_eq!(line.program, tools.join("python9"));
    }

    // Whatever had the name of an interpreter made the packs reload, again and again if it hung.
    #[tokio::test]
    async fn packs_are_reloaded_for_an_interpreter_only_when_it_has_answered() {
        let folder = tempfile::tempdir().unwrap();
        let tools = folder.path().join("tools");
        fs::create_dir(&tools).unwrap();
        let mut catalog = catalog(&folder).await;
        catalog.host.interpreters = RwLock::new(Interpreters::find(tools.to_str().unwrap()).await);
        assert!(catalog.reload().unwrap().get("demo.it").is_none(), "no shell");
        let shell = tools.join("sh");
        let put = |answer: &str| {
            fs::write(&shell, format!("#!/bin/sh\n{answer}\n")).unwrap();
            fs::set_permissions(&shell, Permissions::from_mode(0o755)).unwrap();
        };
        let look = async || {
            let actions = catalog.actions().unwrap();
            catalog.host.look_for_interpreters(actions.lacking()).await;
            catalog.has_found_any()
        };
        put("exit 1");
        assert!(!catalog.has_found_any(), "it was not asked yet");
        assert!(!look().await);
        put("exec /bin/sh \"$@\"");
        assert!(look().await);
    }

    // The look that began first and ended last once put back what it had known at its start.
    #[tokio::test]
    async fn a_look_for_interpreters_undoes_nothing_that_another_one_finds_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let tools = folder.path().join("tools");
        fs::create_dir(&tools).unwrap();
        let put = |name: &str, answer: &str| {
            fs::write(tools.join(name), format!("#!/bin/sh\n{answer}\n")).unwrap();
            fs::set_permissions(tools.join(name), Permissions::from_mode(0o755)).unwrap();
        };
        let mut host = catalog(&folder).await.host;
        host.interpreters = RwLock::new(Interpreters::find(tools.to_str().unwrap()).await);
        // Only the first one who asks has to wait.
        let asked = tools.join("asked");
        let wait = format!("[ -e {0} ] || {{ : >{0}; /bin/sleep 0.5; }}", asked.display());
        put("sh", &format!("{wait}\necho $0\necho 1"));
        let second = async {
            while !asked.exists() {
                tokio::task::yield_now().await;
            }
            put("python3", "echo $0\necho 1");
            host.find_interpreters().await;
        };
        let shell = [catalog(&folder).await.actions().unwrap().get("demo.it").unwrap().clone()];
        tokio::join!(host.look_for_interpreters(&shell), second);
        let found: Vec<_> = host.interpreters().found().iter().map(|it| it.runtime).collect();
        assert_eq!(found, [Runtime::Shell, Runtime::Python]);
    }
}
