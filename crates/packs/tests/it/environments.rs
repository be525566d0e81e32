//! What packs ask for to be installed, and whether it is there.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outlast_packs::environment::{
    EnvironmentKind, EnvironmentState, Manifest, PackEnvironment, Stamp, interpreter,
};
use outlast_packs::{Pack, PackSet};

use crate::fixture::Demo;

const PYTHON: &str = "runner_type: python\nentry_point: it.sh\n";

/// A pack with an action that runs in Python and one that runs in Node.js.
fn demo() -> Demo {
    let node = "runner_type: node\nentry_point: it.sh\n";
    Demo::new().action("runner_type: python\n", "").file("demo/actions/js.yaml", node)
}

fn pack(set: &PackSet) -> &Pack {
    set.packs().find(|pack| pack.reference == "demo").unwrap()
}

/// What the pack asks for in one language.
fn asked(demo: &Demo, kind: EnvironmentKind) -> Option<Arc<PackEnvironment>> {
    let set = demo.load().unwrap();
    pack(&set).environments().iter().find(|it| it.kind() == kind).cloned()
}

fn python(demo: &Demo) -> Arc<PackEnvironment> {
    asked(demo, EnvironmentKind::Python).unwrap()
}

/// Makes an environment as far as this crate does. Its interpreter is that of `tools`.
fn make(environment: &PackEnvironment, id: &str, tools: &Path) -> PathBuf {
    let lock = environment.try_lock().unwrap().unwrap();
    let folder = environment.new_folder(&lock, id);
    fs::create_dir_all(folder.join("bin")).unwrap();
    symlink(tools.join("python3"), interpreter(&folder)).unwrap();
    let stamp = Stamp {
        digest: environment.digest().to_owned(),
        version: "3.11.4".to_owned(),
        interpreter: tools.join("python3").canonicalize().unwrap(),
        folder: environment.folder().to_owned(),
        made_with: "pip".to_owned(),
    };
    environment.put(&lock, &folder, &stamp).unwrap();
    folder
}

/// A folder with a program called `python3`.
fn tools() -> tempfile::TempDir {
    let tools = tempfile::tempdir().unwrap();
    let program = tools.path().join("python3");
    fs::write(&program, "").unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    tools
}

#[test]
fn what_a_pack_asks_for_is_in_its_requirements_its_project_or_its_package() {
    let of = |file: &str, text: &str, kind| {
        let demo = demo().file(&format!("demo/{file}"), text);
        asked(&demo, kind).map(|environment| environment.manifest().clone())
    };
    let python = |file: &str, text: &str| of(file, text, EnvironmentKind::Python);
    assert_eq!(python("requirements.txt", "requests\n"), Some(Manifest::Requirements));
    assert_eq!(python("requirements.txt", "# nothing yet\n\n"), None);
    let project = "[project]\nname = \"x\"\ndependencies = [\"a>=1\", \"b[c]; os_name == 'x'\"]\n";
    let wanted = ["a>=1", "b[c]; os_name == 'x'"].map(str::to_owned).to_vec();
    assert_eq!(python("pyproject.toml", project), Some(Manifest::Project(wanted)));
    assert_eq!(python("pyproject.toml", "[tool.ruff]\nline-length = 99\n"), None);

    let node = |text: &str| of("package.json", text, EnvironmentKind::Node);
    let unlocked = Some(Manifest::Package { is_locked: false });
    assert_eq!(node(r#"{"type": "module", "dependencies": {}}"#), None);
    assert_eq!(node(r#"{"dependencies": {"left-pad": "1"}}"#), unlocked);
    assert_eq!(node(r#"{"optionalDependencies": {"left-pad": "1"}}"#), unlocked);
    let demo = demo()
        .file("demo/package.json", r#"{"dependencies": {"left-pad": "1"}}"#)
        .file("demo/package-lock.json", "{}");
    let locked = asked(&demo, EnvironmentKind::Node).unwrap();
    assert_eq!(*locked.manifest(), Manifest::Package { is_locked: true });
}

#[test]
fn what_asks_for_nothing_that_can_be_installed_is_noted() {
    for (file, text, words) in [
        ("package.json", "{", "package.json: has no effect: it is not JSON: "),
        ("pyproject.toml", "[project", "pyproject.toml: has no effect: it is not TOML: "),
        (
            "pyproject.toml",
            "[project]\ndynamic = [\"dependencies\"]\n",
            "project.dependencies is dynamic; list them there, or in requirements.txt",
        ),
        ("pyproject.toml", "[project]\ndependencies = 1\n", "is not a list of texts"),
    ] {
        let notes = demo().file(&format!("demo/{file}"), text).notes();
        assert!(notes.len() == 1 && notes[0].contains(words), "{text}: {notes:?}");
    }
    let demo = Demo::new().action("", "").file("demo/requirements.txt", "requests\n");
    let words = "DIR/demo/requirements.txt: has no effect: no action runs in a Python environment";
    assert_eq!(demo.notes(), [words]);
}

#[test]
fn python_actions_run_in_the_environment_unless_they_name_another_python() {
    let demo = Demo::new()
        .file("demo/requirements.txt", "requests\n")
        .action("runner_type: python\n", "")
        .file("demo/actions/venv.yaml", &format!("{PYTHON}python: ./.venv/bin/python3\n"))
        .file("demo/actions/other.yaml", &format!("{PYTHON}python: python3\n"));
    let set = demo.load().unwrap();
    let runs_in = |name: &str| set.get(name).unwrap().environment_of_pack.is_some();
    let own = |name: &str| set.get(name).unwrap().own_interpreter.clone().unwrap();
    assert!(runs_in("demo.it") && runs_in("demo.venv") && !runs_in("demo.other"));
    assert_eq!(own("demo.it"), ".venv/bin/python");
    assert_eq!(own("demo.venv"), "./.venv/bin/python3");
    assert_eq!(demo.notes(), Vec::<String>::new());
    let demo = demo.file("demo/actions/it.sh", "#!/opt/py/bin/python3\n");
    let note = "the script's first line `#!/opt/py/bin/python3` has no effect: .venv/bin/python of \
                the pack runs it; `python: PATH` names another one";
    assert_eq!(demo.notes(), [format!("DIR/demo/actions/it.yaml: {note}")]);
}

#[test]
fn digest_is_of_what_is_installed_and_of_nothing_else() {
    let digest = |files: &[(&str, &str)]| {
        let mut demo = demo()
            .file("demo/requirements.txt", "-r base/more.txt\n./local[x]  # ours\nrequests==2\n")
            .file("demo/base/more.txt", "-c ../fixed.txt\n")
            .file("demo/fixed.txt", "requests<3\n")
            .file("demo/local/pyproject.toml", "[project]\n")
            .file("demo/local/local/it.py", "x = 1\n");
        for (path, text) in files {
            demo = demo.file(path, text);
        }
        python(&demo).digest().to_owned()
    };
    let plain = digest(&[]);
    for changed in
        ["requirements.txt", "base/more.txt", "fixed.txt", "local/local/it.py", "local/new.py"]
    {
        let text = if changed == "requirements.txt" { "requests==3\n" } else { "changed\n" };
        assert_ne!(digest(&[(&format!("demo/{changed}"), text)]), plain, "{changed}");
    }
    let others = [("demo/actions/it.sh", "other"), ("demo/pack.yaml", "ref: demo\nlabel: L\n")];
    assert_eq!(digest(&others), plain);
}

#[test]
fn environment_is_missing_then_fresh_and_stale_when_what_it_was_made_of_changes() {
    let tools = tools();
    let demo = demo().file("demo/requirements.txt", "requests==1\n");
    let (environment, digest) = (python(&demo), pack(&demo.load().unwrap()).digest.clone());
    let missing = |why: &str| EnvironmentState::Missing(why.to_owned());
    assert_eq!(environment.state(None), missing("is missing"));
    let folder = make(&environment, "a", tools.path());
    assert_eq!(environment.state(None), EnvironmentState::Fresh);
    assert_eq!(environment.state(Some("3.11.9")), EnvironmentState::Fresh);
    assert_eq!(pack(&demo.load().unwrap()).digest, digest, "environments are no part of the pack");
    let stale = |environment: &PackEnvironment, version| match environment.state(version) {
        EnvironmentState::Stale(why) => why,
        other => panic!("{other:?}"),
    };
    let why = stale(&environment, Some("3.12.0"));
    assert_eq!(why, "it was made with Python 3.11.4, and 3.12.0 would use it");

    let demo = demo.file("demo/requirements.txt", "requests==2\n");
    let changed = stale(&python(&demo), None);
    assert_eq!(changed, "requirements.txt has changed since it was made");
    let demo = demo.file("demo/requirements.txt", "requests==1\n");
    assert_eq!(python(&demo).state(None), EnvironmentState::Fresh);

    // The same name leads to another program, as after an upgrade of the system.
    fs::rename(tools.path().join("python3"), tools.path().join("python3.12")).unwrap();
    symlink("python3.12", tools.path().join("python3")).unwrap();
    assert!(stale(&environment, None).ends_with("/python3.12 would use it"));
    fs::remove_file(tools.path().join("python3")).unwrap();
    let EnvironmentState::Missing(why) = environment.state(None) else { panic!("it is whole") };
    assert!(why.starts_with("has lost its interpreter "), "{why}");
    fs::rename(tools.path().join("python3.12"), tools.path().join("python3")).unwrap();
    fs::remove_file(folder.join("outlast.json")).unwrap();
    assert_eq!(environment.state(None), missing("is not whole"));
}

#[test]
fn a_pack_that_was_copied_elsewhere_has_a_stale_environment() {
    let tools = tools();
    let demo = demo().file("demo/requirements.txt", "requests\n");
    make(&python(&demo), "a", tools.path());
    fs::rename(demo.path().join("demo"), demo.path().join("moved")).unwrap();
    let EnvironmentState::Stale(why) = python(&demo).state(None) else { panic!("it moved") };
    assert!(why.contains("the programs in it name that folder"), "{why}");
}

#[test]
fn what_others_made_is_left_alone() {
    let demo = demo().file("demo/requirements.txt", "requests\n").file("demo/.venv/bin/x", "");
    let environment = python(&demo);
    assert_eq!(environment.state(None), EnvironmentState::ByHand);
    assert!(environment.enter().unwrap().is_none());
    fs::rename(demo.path().join("demo/.venv"), demo.path().join("venv")).unwrap();
    symlink("../venv", demo.path().join("demo/.venv")).unwrap();
    assert_eq!(environment.state(None), EnvironmentState::ByHand);
    fs::remove_dir_all(demo.path().join("venv")).unwrap();
    assert_eq!(environment.state(None), EnvironmentState::Missing("leads nowhere".to_owned()));
    let refused = environment.enter().unwrap_err();
    let words = "the Python environment of pack demo leads nowhere: run `outlast packs sync ";
    assert!(refused.starts_with(words), "{refused}");
}

#[test]
fn an_environment_in_use_stays_until_it_is_left() {
    let tools = tools();
    let demo = demo().file("demo/requirements.txt", "requests\n");
    let environment = python(&demo);
    let old = make(&environment, "a", tools.path());
    let in_use = environment.enter().unwrap().expect("it is there");
    assert_eq!(in_use.folder(), old);
    let new = make(&environment, "b", tools.path());
    let half = new.with_file_name("python-half");
    fs::create_dir(&half).unwrap();
    let sweep = || {
        let lock = environment.try_lock().unwrap().unwrap();
        assert!(environment.try_lock().unwrap().is_none(), "one at a time");
        environment.sweep(&lock).unwrap()
    };
    assert_eq!(sweep(), 1);
    assert!(old.exists() && new.exists() && !half.exists());
    assert_eq!(environment.enter().unwrap().unwrap().folder(), new);
    drop(in_use);
    assert_eq!(sweep(), 0);
    assert!(!old.exists() && new.exists());
    assert_eq!(environment.state(None), EnvironmentState::Fresh);
}
