//! The packages of `clients/`, built and installed into an empty place as their users do.
//!
//! ```text
//! sources ─▶ wheel or tarball ─▶ a fresh environment below target/, one for each state of the sources
//! ```

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::binary::profile_dir;
use crate::skip;

/// Handlers and a producer for each package.
const PROGRAMS: &[(&str, &str)] = &[
    ("tasks.py", include_str!("clients/tasks.py")),
    ("producer.py", include_str!("clients/producer.py")),
    ("tasks.mjs", include_str!("clients/tasks.mjs")),
    ("producer.mjs", include_str!("clients/producer.mjs")),
];

/// A package that is installed.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The interpreter that finds it.
    pub program: PathBuf,
    /// `outlast-worker`.
    pub worker: PathBuf,
    /// Where the package's modules are, for a language that looks for them beside the program.
    pub modules: Option<PathBuf>,
}

impl Installed {
    /// Writes the programs of the tests to a folder from which the package can be used.
    ///
    /// # Panics
    ///
    /// When they cannot be written.
    pub fn prepare(&self, folder: &Path) {
        for (name, text) in PROGRAMS {
            fs::write(folder.join(name), text).expect("a program");
        }
        self.link(folder);
    }

    /// Makes the package usable for programs in a folder.
    ///
    /// # Panics
    ///
    /// When the link to its modules cannot be made.
    pub fn link(&self, folder: &Path) {
        if let Some(modules) = &self.modules {
            let link = folder.join("node_modules");
            std::os::unix::fs::symlink(modules, link).expect("a link");
        }
    }
}

/// The Python package; `None` where Python is missing and that is allowed.
///
/// # Panics
///
/// When it cannot be built or installed.
#[must_use]
pub fn python() -> Option<Installed> {
    if !skip::has("python3", "python3") {
        return None;
    }
    let folder = installed("python", |sources, folder| {
        let environment = folder.join("environment");
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
        let pip = environment.join("bin/pip");
        let wheels = folder.join("wheels");
        // Neither asks a package index for anything.
        let quiet = ["--quiet", "--disable-pip-version-check", "--no-deps"];
        run(Command::new(&pip)
            .arg("wheel")
            .args(quiet)
            .args(["--no-build-isolation", "--wheel-dir"])
            .arg(&wheels)
            .arg(sources));
        let wheel = only_file(&wheels);
        run(Command::new(&pip).arg("install").args(quiet).arg("--no-index").arg(wheel));
    });
    let bin = folder.join("environment/bin");
    Some(Installed {
        program: bin.join("python"),
        worker: bin.join("outlast-worker"),
        modules: None,
    })
}

/// The Node.js package; `None` where Node.js is missing and that is allowed.
///
/// # Panics
///
/// When it cannot be built or installed.
#[must_use]
pub fn node() -> Option<Installed> {
    if !skip::has("node", "nodejs") || !skip::has("npm", "npm") {
        return None;
    }
    let folder = installed("node", |sources, folder| {
        let packed = folder.join("packed");
        fs::create_dir_all(&packed).expect("a folder");
        run(Command::new("npm")
            .args(["pack", "--silent", "--pack-destination"])
            .arg(&packed)
            .arg(sources));
        fs::write(folder.join("package.json"), "{\"private\": true}").expect("a file");
        let mut install = Command::new("npm");
        install.args(["install", "--offline", "--no-audit", "--no-fund", "--silent"]);
        run(install.arg(only_file(&packed)).current_dir(folder));
    });
    let modules = folder.join("node_modules");
    Some(Installed {
        program: PathBuf::from("node"),
        worker: modules.join(".bin/outlast-worker"),
        modules: Some(modules),
    })
}

/// Returns the folder in which `install` has put the package, which is done once for each state of
/// its sources, however many tests ask at the same time.
fn installed(client: &str, install: impl FnOnce(&Path, &Path)) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients").join(client);
    let all = profile_dir().join("clients");
    fs::create_dir_all(&all).expect("a folder");
    let folder = all.join(format!("{client}-{:016x}", digest(&sources)));
    let lock = File::create(all.join(format!("{client}.lock"))).expect("a lock file");
    lock.lock().expect("the lock");
    let done = folder.join("done");
    if !done.is_file() {
        let _absent = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        // The build may leave files beside the sources, so it works on a copy.
        let copy = folder.join("sources");
        copy_folder(&sources, &copy);
        install(&copy, &folder);
        File::create(done).expect("a file");
    }
    folder
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources");
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("an entry").path();
        match path.file_name().and_then(|name| name.to_str()) {
            Some("__pycache__" | "node_modules" | "build") | None => {}
            Some(_) if path.is_dir() => found.extend(files(&path)),
            Some(_) => found.push(path),
        }
    }
    found.sort();
    found
}

fn digest(folder: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in files(folder) {
        path.hash(&mut hasher);
        fs::read(path).expect("a source").hash(&mut hasher);
    }
    hasher.finish()
}

fn copy_folder(from: &Path, to: &Path) {
    for path in files(from) {
        let target = to.join(path.strip_prefix(from).expect("a path below"));
        fs::create_dir_all(target.parent().expect("a folder")).expect("a folder");
        let _bytes = fs::copy(&path, target).expect("a copy");
    }
}

fn only_file(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder).expect("a folder");
    let all: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
}
