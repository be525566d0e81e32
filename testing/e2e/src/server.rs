//! `outlast server` as a process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_cluster::{Cluster, Database};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::binary;
use crate::process::{self, Process};
use crate::wait;

const START_BOUND: Duration = Duration::from_secs(30);
const STOP_BOUND: Duration = Duration::from_secs(30);
const ANNOUNCEMENT: &str = "listening on ";

/// How to start a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    settings: BTreeMap<String, BTreeMap<String, Value>>,
    arguments: Vec<String>,
    store: Store,
    open_files: Option<u32>,
    program: Option<PathBuf>,
}

/// Where a server keeps its jobs.
#[derive(Clone, Debug)]
enum Store {
    /// In a file of its own; in a database of its own if `OUTLAST_TEST_STORE=postgres`.
    Own,
    /// In a PostgreSQL database of its own.
    Postgres,
    /// In this store.
    Named(String),
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self::bare()
            .set("server.shutdown_timeout", json!(5))
            .set("executor.timeout_check_interval", json!(wait::SWEEP.as_secs_f64()))
            .set("worker.heartbeat_interval", json!(wait::HEARTBEAT.as_secs_f64()))
            .set("worker.heartbeat_staleness_multiplier", json!(5))
            .set("worker.reconnect_window", json!(wait::RECONNECT.as_secs_f64()))
    }
}

impl ServerOptions {
    /// The server's own defaults.
    #[must_use]
    pub const fn bare() -> Self {
        Self {
            settings: BTreeMap::new(),
            arguments: Vec::new(),
            store: Store::Own,
            open_files: None,
            program: None,
        }
    }

    /// Runs another build.
    #[must_use]
    pub fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// Sets a configuration key such as `executor.scheduled_timeout`.
    ///
    /// # Panics
    ///
    /// When the key has no section.
    #[must_use]
    pub fn set(mut self, key: &str, value: Value) -> Self {
        let (section, key) = key.split_once('.').expect("a key is section.name");
        self.settings.entry(section.to_owned()).or_default().insert(key.to_owned(), value);
        self
    }

    /// Adds an argument to the command line.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Lets the process open this many files and no more.
    #[must_use]
    pub const fn open_files(mut self, limit: u32) -> Self {
        self.open_files = Some(limit);
        self
    }

    /// Keeps jobs in a PostgreSQL database of its own.
    #[must_use]
    pub fn postgres(mut self) -> Self {
        self.store = Store::Postgres;
        self
    }

    /// Keeps jobs in this store.
    #[must_use]
    pub fn database(mut self, address: &str) -> Self {
        self.store = Store::Named(address.to_owned());
        self
    }

    fn is_tls(&self) -> bool {
        self.settings.get("server").is_some_and(|server| server.contains_key("tls"))
    }

    /// Writes the configuration file. JSON is YAML.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write(&self, path: &Path) {
        let text = serde_json::to_string_pretty(&self.settings).expect("settings are JSON");
        std::fs::write(path, text).expect("writing the configuration");
    }
}

/// A running server, which can be killed and started again at the same address.
#[derive(Debug)]
pub struct Server {
    process: Process,
    launch: Launch,
    address: String,
    database: String,
    // Dropped last: the server writes to it.
    own: Option<Database>,
}

impl Server {
    /// Starts a server on a free port with its store in `folder`, and waits until it listens.
    #[must_use]
    pub fn start(folder: &Path, packs: &Path, options: &ServerOptions) -> Self {
        let config = folder.join("outlast.yaml");
        options.write(&config);
        let own = match &options.store {
            Store::Postgres => Some(new_database()),
            Store::Own if std::env::var("OUTLAST_TEST_STORE").is_ok_and(|it| it == "postgres") => {
                Some(new_database())
            }
            Store::Own | Store::Named(_) => None,
        };
        let database = match (&own, &options.store) {
            (Some(own), _) => own.url.clone(),
            (None, Store::Named(address)) => address.clone(),
            (None, _) => format!("sqlite:{}", folder.join("outlast.db").display()),
        };
        let mut arguments = vec![
            "--database".to_owned(),
            database.clone(),
            "--config".to_owned(),
            config.display().to_string(),
            "--packs".to_owned(),
            packs.display().to_string(),
        ];
        arguments.extend(options.arguments.iter().cloned());
        let launch = Launch {
            arguments,
            folder: folder.to_owned(),
            scheme: if options.is_tls() { "https" } else { "http" },
            open_files: options.open_files,
            program: options.program.clone(),
        };
        let (process, address) = launch.run("127.0.0.1:0");
        Self { process, launch, address, database, own }
    }

    /// Returns `http://127.0.0.1:PORT`, with `https` where it has a certificate.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.launch.scheme, self.address)
    }

    /// Returns the address of its store.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Returns the PostgreSQL cluster that is its alone, to stop it and start it again.
    pub fn cluster_mut(&mut self) -> Option<&mut Cluster> {
        self.own.as_mut()?.cluster.as_mut()
    }

    /// Kills the server where it stands.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks the server to stop and returns its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.process.signal(Signal::TERM);
        self.process.await_end(STOP_BOUND)
    }

    /// Starts it again, at the same address and on the same store.
    pub fn start_again(&mut self) {
        let (process, _) = self.launch.run(&self.address);
        self.process = process;
    }

    /// Starts it again as this build, whichever it was.
    pub fn start_again_as_this_build(&mut self) {
        self.launch.program = None;
        self.start_again();
    }

    /// Starts it again, at the same address and on another store.
    pub fn start_again_on(&mut self, database: &str) {
        for argument in &mut self.launch.arguments {
            if *argument == self.database {
                database.clone_into(argument);
            }
        }
        database.clone_into(&mut self.database);
        self.start_again();
    }

    /// Returns the process.
    #[must_use]
    pub const fn process(&self) -> &Process {
        &self.process
    }
}

fn new_database() -> Database {
    Database::new().expect("a PostgreSQL database")
}

/// How a server is started, the first time and again.
#[derive(Debug)]
struct Launch {
    arguments: Vec<String>,
    folder: PathBuf,
    scheme: &'static str,
    open_files: Option<u32>,
    program: Option<PathBuf>,
}

impl Launch {
    fn run(&self, listen: &str) -> (Process, String) {
        let mut all = vec!["server".to_owned(), "--listen".to_owned(), listen.to_owned()];
        all.extend_from_slice(&self.arguments);
        let program = self.program.as_deref().unwrap_or_else(|| binary::outlast());
        let mut command = process::command_of(program, &all);
        if let Some(limit) = self.open_files {
            command = process::with_open_files(&command, limit);
        }
        let mut process = Process::spawn("server", command, &self.folder);
        let announcement = format!("{ANNOUNCEMENT}{}://", self.scheme);
        let line = process.await_line(&announcement, START_BOUND);
        let address = line.split(&announcement).nth(1).unwrap_or_default();
        let address: String =
            address.chars().take_while(|c| c.is_ascii_digit() || ".:".contains(*c)).collect();
        assert!(address.starts_with("127.0.0.1:"), "an address in {line:?}");
        (process, address)
    }
}
