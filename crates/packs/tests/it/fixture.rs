//! Packs in temporary folders, and scripts run for real.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use outlast_packs::{Action, PARAMETER_FILE_VARIABLE, Pack, PackError, PackSet};
use serde_json::Value;
use tempfile::TempDir;

/// A pack called `demo` under construction.
#[derive(Debug)]
pub(crate) struct Demo {
    root: TempDir,
}

impl Demo {
    pub(crate) fn new() -> Self {
        let demo = Self { root: tempfile::tempdir().unwrap() };
        demo.file("demo/pack.yaml", "ref: demo\nlabel: Demo\n")
    }

    /// Writes a file below the folder that holds the pack.
    pub(crate) fn file(self, path: &str, text: &str) -> Self {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Adds the action `demo.it`, a shell script unless `definition` says otherwise.
    pub(crate) fn action(self, definition: &str, script: &str) -> Self {
        let head = if definition.contains("runner_type") { "" } else { "runner_type: shell\n" };
        let text = format!("ref: demo.it\nentry_point: it.sh\n{head}{definition}");
        self.file("demo/actions/it.yaml", &text).file("demo/actions/it.sh", script)
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn load(&self) -> Result<PackSet, PackError> {
        PackSet::load(&[self.root.path().to_owned()])
    }

    /// The message of the fault in this pack, without the temporary folder's name.
    pub(crate) fn fault(&self) -> String {
        let message = match self.load() {
            Err(fault) => fault.to_string(),
            Ok(set) => set.faults().next().unwrap().to_string(),
        };
        let real = self.root.path().canonicalize().unwrap();
        let message = message.replace(&real.display().to_string(), "DIR");
        message.replace(&self.root.path().display().to_string(), "DIR")
    }

    /// The notes about the pack, without the temporary folder's name.
    pub(crate) fn notes(&self) -> Vec<String> {
        let set = self.load().unwrap();
        let notes = set.packs().find(|pack| pack.reference == "demo").map(Pack::notes).unwrap();
        let here = self.root.path().display().to_string();
        notes.iter().map(|note| note.to_string().replace(&here, "DIR")).collect()
    }
}

/// Hands `demo.it` of a pack with this definition to `check`.
pub(crate) fn with_action<T>(definition: &str, check: impl FnOnce(&Action) -> T) -> T {
    let demo = Demo::new().action(definition, "#!/bin/sh\n");
    check(demo.load().unwrap().get("demo.it").unwrap())
}

/// How a script ended and what it printed.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// Checks and renders parameters and runs the action on them, as a worker would.
pub(crate) fn run(action: &Action, parameters: &Value) -> Ran {
    let complete = action.check_again(parameters).unwrap();
    run_with(action, &complete, action.interpreter())
}

/// Runs an action with a shell or interpreter of the test's choice.
#[expect(clippy::disallowed_methods, reason = "the tests run the scripts for real")]
pub(crate) fn run_with(action: &Action, complete: &Value, interpreter: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    PackSet::embedded_core().unwrap().materialise(folder.path()).unwrap();
    let program = action.program(folder.path());
    let rendered = action.render(complete);
    let mut command = Command::new(interpreter);
    command.arg(&program.script).current_dir(&program.folder).envs(rendered.env);
    if let Some(content) = &rendered.file {
        let file: PathBuf = folder.path().join("parameters");
        fs::write(&file, content).unwrap();
        command.env(PARAMETER_FILE_VARIABLE, file);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A script may end without reading, so the write may fail; that is no fault.
    let feeder = thread::spawn(move || stdin.write_all(&rendered.stdin.unwrap_or_default()));
    let output = child.wait_with_output().unwrap();
    drop(feeder.join().unwrap());
    Ran {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
