//! Running one page: a folder, the servers and workers it starts, the ids it has shown.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::expect::{self, Ids};
use super::{Block, Step};
use crate::binary;
use crate::clients;
use crate::process::{self, Process};
use crate::wait::poll;

/// What a command may begin with.
const MAY_RUN: &[&str] =
    &["outlast", "curl", "ls", "cat", "mkdir", "chmod", "echo", "python3", "node", CLIENT_WORKER];
/// Programs of pages that run until the end of the page.
const WORKERS: &[&str] = &["worker.py", "worker.mjs"];
/// The worker of the packages in `clients/`. It runs until the end of the page, too.
const CLIENT_WORKER: &str = "outlast-worker";
/// Commands that only look: they are asked again until they show what the page says.
const LOOKS: &[&str] = &["list", "show", "stats", "doctor"];
/// Where a page says its server is.
const WRITTEN: &[&str] = &["127.0.0.1:8080", "localhost:8080"];
/// The worker of a page is called this wherever it runs.
const WORKER_NAME: &str = "laptop";
const UNREASONED: &str = "commands that are not run; begin the block with ```console, or with \
                          ```sh not run: and the reason";
/// A demonstration is the longest thing a page does.
const STEP_MAX: Duration = Duration::from_secs(240);
const LOOK_MAX: Duration = Duration::from_secs(20);
const START_MAX: Duration = Duration::from_secs(60);

/// A page that is being run.
#[derive(Debug)]
pub struct Session {
    // Dropped in this order: what runs before the folder it writes to.
    services: Vec<Process>,
    address: Option<String>,
    ids: Ids,
    /// The Rust program that the page showed last.
    program: Option<String>,
    /// Where programs of the packages in `clients/` are, if the page uses them.
    clients: Vec<PathBuf>,
    folder: TempDir,
}

impl Session {
    /// Runs a page from top to bottom.
    ///
    /// # Errors
    /// What is not as the page says, with its line.
    ///
    /// # Panics
    /// When a process cannot be started or a file cannot be read.
    pub fn run(page: &str) -> Result<(), String> {
        let folder = tempfile::Builder::new().prefix("outlast-page-").tempdir().expect("a folder");
        // On a terminal, curl shows no progress.
        std::fs::write(folder.path().join(".curlrc"), "silent\nshow-error\n").expect("a file");
        let clients = clients_of(page, folder.path());
        let (services, ids) = (Vec::new(), Ids::new());
        let mut session = Self { services, address: None, ids, program: None, clients, folder };
        for block in super::blocks(page) {
            match block {
                Block::File { path, text } => session.write(&path, &text),
                Block::Unrun { line, reason } if reason.is_empty() => {
                    return Err(format!("line {line}: {UNREASONED}"));
                }
                Block::Unrun { .. } => {}
                Block::Step(step) => session
                    .step(&step)
                    .map_err(|fault| format!("line {}: $ {}\n{fault}", step.line, step.command))?,
            }
        }
        Ok(())
    }

    fn write(&mut self, path: &str, text: &str) {
        if path.ends_with("src/main.rs") {
            self.program = Some(text.to_owned());
        }
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("a folder");
        std::fs::write(path, text).expect("writing a page's file");
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let is_variable = |word: &&str| word.contains('=') && !word.starts_with('-');
        // `npx` finds the programs of the packages that the page has installed; here PATH does.
        let words = step.command.split_whitespace().skip_while(is_variable);
        let words: Vec<&str> = words.skip_while(|word| *word == "npx").collect();
        let first = words.first().copied().unwrap_or_default();
        if words == ["cargo", "run"] {
            return self.run_program();
        }
        if !MAY_RUN.contains(&first) {
            return Err(format!("`{first}` is not run; see CONTRIBUTING.md for what is"));
        }
        if let ("outlast", Some(role @ &("dev" | "server" | "worker"))) = (first, words.get(1)) {
            return self.serve(role, &words[2..], &step.shown);
        }
        if self.address.is_none() && matches!(first, "outlast" | "curl") {
            self.serve("dev", &[], &[])?;
        }
        if let [program, worker] = words[..]
            && WORKERS.contains(&worker)
        {
            return self.keep(program, &[worker], &step.shown);
        }
        if first == CLIENT_WORKER {
            let program = self.client_worker(words[1]);
            return self.keep(&program, &words[1..], &step.shown);
        }
        let only_looks = words.iter().take(3).any(|word| LOOKS.contains(word));
        let mut last = Err("it was not run".to_owned());
        let bound = if only_looks { LOOK_MAX } else { Duration::ZERO };
        let _done = poll(bound, || {
            last = self.command(step);
            last.is_ok().then_some(())
        });
        last
    }

    /// Starts the page's program: building it takes too long, so it must be one of the SDK's
    /// examples, which are built anyway.
    fn run_program(&mut self) -> Result<(), String> {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/sdk/examples");
        let is_it = |path: &PathBuf| std::fs::read_to_string(path).ok() == self.program;
        let found = std::fs::read_dir(examples).expect("the SDK's examples");
        let found = found.map(|entry| entry.expect("an entry").path()).find(is_it);
        let Some(found) = found.as_deref().and_then(Path::file_stem) else {
            return Err("no example of the SDK is the program that the page shows".to_owned());
        };
        let mut command = Command::new(binary::sdk_example(&found.to_string_lossy()));
        self.surround(&mut command);
        command.args(self.address.iter().map(|address| format!("http://{address}")));
        let mut service = Process::spawn("program", command, self.folder.path());
        let _line = service.await_line("registered", START_MAX);
        self.services.push(service);
        Ok(())
    }

    /// The program of the package in whose language an app is.
    fn client_worker(&self, app: &str) -> String {
        let node = app.ends_with(".mjs");
        let of_node = |folder: &&PathBuf| folder.ends_with(".bin");
        let folder = self.clients.iter().find(|folder| of_node(folder) == node);
        let folder = folder.cloned().unwrap_or_default();
        folder.join(CLIENT_WORKER).display().to_string()
    }

    /// Starts a worker that the page has written.
    fn keep(&mut self, program: &str, words: &[&str], shown: &[String]) -> Result<(), String> {
        let mut command = Command::new(program);
        self.surround(&mut command).args(words).stdin(Stdio::null());
        let service = Process::spawn("worker", command, self.folder.path());
        self.services.push(service);
        let service = self.services.last().expect("it was just pushed");
        let seen = poll(START_MAX, || {
            expect::check(shown, &self.as_written(&service.log()), &mut self.ids.clone()).ok()
        });
        seen.ok_or_else(|| format!("does not print what is shown but\n{}", service.log()))
    }

    fn command(&mut self, step: &Step) -> Result<(), String> {
        let command = expect::with_ids(&self.at_home(&step.command), &self.ids);
        let (printed, code) = self.shell(&command);
        if code != Some(step.code) {
            return Err(format!("ended with {code:?}, not {}; it printed:\n{printed}", step.code));
        }
        let printed = self.as_written(&printed);
        expect::check(&step.shown, &printed, &mut self.ids)
            .map_err(|line| format!("does not print\n  {line}\nbut\n{printed}"))
    }

    /// Runs a command line; what it prints and its code.
    fn shell(&self, command: &str) -> (String, Option<i32>) {
        // One stream for both, so that lines come in the order in which a terminal shows them.
        let command = format!("exec 2>&1\n{command}");
        let mut shell = Command::new("timeout");
        shell.arg(STEP_MAX.as_secs().to_string()).args(["sh", "-c", &command]);
        let shell = self.surround(&mut shell).stdin(Stdio::null());
        let output = shell.output().expect("a shell starts");
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
    }

    /// Starts what stays; a second server takes the first one's place.
    fn serve(&mut self, role: &str, words: &[&str], shown: &[String]) -> Result<(), String> {
        let mut arguments = vec![role.to_owned()];
        arguments.extend(words.iter().map(|word| self.at_home(word)));
        let is_server = role != "worker";
        if is_server {
            self.stop_services();
            if let Some(at) = arguments.iter().position(|word| word == "--listen") {
                arguments.drain(at..(at + 2).min(arguments.len()));
            }
            arguments.extend(["--listen".to_owned(), "127.0.0.1:0".to_owned()]);
        }
        let mut command = process::command(&arguments);
        self.surround(&mut command);
        let mut service = Process::spawn(role, command, self.folder.path());
        let sign = match role {
            "dev" => "Outlast is at http://",
            "server" => "listening on http://",
            _ => "registered",
        };
        let line = service.await_line(sign, START_MAX);
        if is_server {
            let address = line.split(sign).nth(1).unwrap_or_default();
            let is_part = |c: &char| c.is_ascii_digit() || ".:".contains(*c);
            self.address = Some(address.chars().take_while(is_part).collect());
        }
        let seen = poll(START_MAX, || {
            let log = self.as_written(&service.log());
            expect::check(shown, &log, &mut self.ids.clone()).ok()
        });
        let log = service.log();
        self.services.push(service);
        seen.ok_or_else(|| format!("does not print what is shown but\n{log}"))
    }

    /// The page's folder, its server, and the binary under test.
    fn surround<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let program = binary::outlast().parent().map(Path::to_owned).unwrap_or_default();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let first = std::iter::once(program).chain(self.clients.iter().cloned());
        let path: Vec<PathBuf> = first.chain(std::env::split_paths(&path)).collect();
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("OUTLAST_") || text.starts_with("OJS_") {
                command.env_remove(&name);
            }
        }
        command
            .current_dir(self.folder.path())
            .env("PATH", std::env::join_paths(path).expect("folders without colons"))
            .env("CURL_HOME", self.folder.path())
            .env("no_proxy", "127.0.0.1")
            .env("OUTLAST_WORKER__NAME", WORKER_NAME);
        if let Some(address) = &self.address {
            command.env("OUTLAST_SERVER", format!("http://{address}"));
        }
        command
    }

    /// With the real address where the page has 8080.
    fn at_home(&self, text: &str) -> String {
        let Some(address) = &self.address else { return text.to_owned() };
        WRITTEN.iter().fold(text.to_owned(), |text, written| text.replace(written, address))
    }

    /// With 8080 where the real address is, and without the flag that the default needs not.
    fn as_written(&self, text: &str) -> String {
        match &self.address {
            Some(address) => {
                let flag = format!(" --server http://{}", WRITTEN[0]);
                text.replace(address, WRITTEN[0]).replace(&flag, "")
            }
            None => text.to_owned(),
        }
    }

    fn stop_services(&mut self) {
        // Workers first, as one would.
        for mut service in self.services.drain(..).rev() {
            service.signal(Signal::TERM);
            let _code = service.await_end(START_MAX);
        }
        self.address = None;
    }
}

/// Installs the packages in `clients/` for a page that uses their worker; returns where their
/// programs are.
fn clients_of(page: &str, folder: &Path) -> Vec<PathBuf> {
    if !page.contains(CLIENT_WORKER) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for installed in [clients::python(), clients::node()].into_iter().flatten() {
        installed.link(folder);
        found.extend(installed.worker.parent().map(Path::to_owned));
    }
    found
}

impl Drop for Session {
    fn drop(&mut self) {
        self.services.drain(..).rev().for_each(drop);
    }
}
