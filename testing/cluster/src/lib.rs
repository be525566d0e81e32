//! A throw-away PostgreSQL for tests, from the system's own programs: `initdb` from PATH or
//! from `/usr/lib/postgresql/*/bin`, in a temporary folder that goes when it is dropped. As
//! root, which PostgreSQL refuses to run as, it runs as `nobody`.
//!
//! Tests that need only a database of their own share one cluster: the one that
//! `OUTLAST_TEST_POSTGRES` names (`postgres://user@host:port`), else one of their own.

mod bouncer;
mod nested;

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use crate::bouncer::{Bouncer, Pooling};
pub use crate::nested::hide_package;

/// The unprivileged user and group that PostgreSQL runs as when the tests run as root.
const NOBODY: u32 = 65_534;
/// Longest that starting or stopping may take on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Variable that names the cluster which tests share.
pub const SHARED: &str = "OUTLAST_TEST_POSTGRES";

/// How a cluster is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are cut, and everything is written: `pg_ctl stop -m fast`.
    Fast,
    /// As after a crash: `pg_ctl stop -m immediate`.
    Immediate,
    /// `kill -9` of every process.
    Kill,
}

/// A cluster of our own.
#[derive(Debug)]
pub struct Cluster {
    programs: PathBuf,
    folder: TempDir,
    port: u16,
    settings: Vec<String>,
    server: Option<Child>,
}

/// A database of a test's own.
#[derive(Debug)]
pub struct Database {
    /// Its address.
    pub url: String,
    /// The cluster it is in, if that is ours alone.
    pub cluster: Option<Cluster>,
}

impl Database {
    /// Makes a new, empty database where one can be made.
    ///
    /// # Errors
    /// Returns what is missing or failed.
    pub fn new() -> anyhow::Result<Self> {
        if let Ok(shared) = std::env::var(SHARED) {
            let base = shared.trim_end_matches('/').to_owned();
            let name = unique_name();
            create(&base, &name)?;
            return Ok(Self { url: format!("{base}/{name}"), cluster: None });
        }
        let cluster = Cluster::start(&[])?;
        Ok(Self { url: cluster.create_database()?, cluster: Some(cluster) })
    }
}

/// A session beside the program under test, for instance one that holds locks. What it holds
/// is let go when it is dropped.
#[derive(Debug)]
pub struct Session {
    // Dropped in this order: the connection ends with its runtime.
    client: tokio_postgres::Client,
    runtime: tokio::runtime::Runtime,
}

impl Session {
    /// Connects to a database.
    ///
    /// # Errors
    /// Returns why it cannot.
    pub fn open(url: &str) -> anyhow::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            anyhow::Ok(client)
        })?;
        Ok(Self { client, runtime })
    }

    /// Runs statements.
    ///
    /// # Errors
    /// Returns what PostgreSQL said.
    pub fn run(&self, sql: &str) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.client.batch_execute(sql))?)
    }

    /// Asks for one number.
    ///
    /// # Errors
    /// Returns what PostgreSQL said.
    pub fn number(&self, sql: &str) -> anyhow::Result<i64> {
        Ok(self.runtime.block_on(self.client.query_one(sql, &[]))?.try_get(0)?)
    }
}

/// Process ids come round again within one run of all tests, so the time is part of the name.
fn unique_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("t{}_{}_{count}", since.as_micros(), std::process::id())
}

fn create(base: &str, name: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let address = format!("{base}/postgres");
        let (client, connection) = tokio_postgres::connect(&address, tokio_postgres::NoTls).await?;
        let talking = tokio::spawn(connection);
        client.batch_execute(&format!("create database {name}")).await?;
        talking.abort();
        Ok(())
    })
}

/// Finds the folder of PostgreSQL's programs.
fn programs() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|folder| folder.join("initdb"));
    // A link to it leads to the folder where the others are.
    if let Some(found) = found.find_map(|program| program.canonicalize().ok()) {
        return Ok(found.parent().context("initdb is in no folder")?.to_owned());
    }
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    versions.sort();
    versions
        .pop()
        .context("initdb is neither in PATH nor in /usr/lib/postgresql/*/bin: install postgresql")
}

impl Cluster {
    /// Makes a cluster with these settings (`name=value`) and starts it.
    ///
    /// # Errors
    /// Returns what is missing or failed.
    pub fn start(settings: &[&str]) -> anyhow::Result<Self> {
        let programs = programs()?;
        let folder = tempfile::Builder::new().prefix("outlast-pg-").tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut cluster = Self { programs, folder, port, settings, server: None };
        if is_root() {
            chown(cluster.folder.path(), Some(NOBODY), Some(NOBODY))?;
        }
        let made = cluster
            .command("initdb")
            .args(["-U", "outlast", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
            .arg("-D")
            .arg(cluster.data())
            .output()?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        cluster.start_again()?;
        Ok(cluster)
    }

    /// Makes a second cluster that follows this one, which goes on running.
    ///
    /// # Errors
    /// Returns what is missing or failed.
    pub fn standby(&self) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("outlast-pg-").tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let programs = self.programs.clone();
        let mut standby =
            Self { programs, folder, port, settings: self.settings.clone(), server: None };
        if is_root() {
            chown(standby.folder.path(), Some(NOBODY), Some(NOBODY))?;
        }
        standby.follow(self)?;
        Ok(standby)
    }

    /// Starts the cluster, which is not running, as a fresh copy of another one that it follows.
    /// What was in it is gone.
    ///
    /// # Errors
    /// Returns what failed.
    pub fn follow(&mut self, primary: &Self) -> anyhow::Result<()> {
        ensure!(self.server.is_none(), "it runs");
        match std::fs::remove_dir_all(self.data()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let copied = self
            .command("pg_basebackup")
            .arg("-D")
            .arg(self.data())
            .args(["-d", &format!("{}/postgres", primary.url()), "-R", "-X", "stream"])
            .args(["-c", "fast", "--no-sync"])
            .output()?;
        ensure!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        self.start_again()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Starts the server of the cluster, which is not running, and waits until it takes
    /// connections.
    ///
    /// # Errors
    /// Returns what it said when it does not start.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + LIMIT;
        loop {
            match self.try_start(end) {
                Ok(()) => return Ok(()),
                // Processes of a server that was killed may take a moment to notice.
                Err(error) if Instant::now() >= end => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Starts the server of the cluster, which is not running, as a standby: it takes reads only until
    /// it is promoted.
    ///
    /// # Errors
    /// Returns what it said when it does not start.
    pub fn start_as_standby(&mut self) -> anyhow::Result<()> {
        let signal = self.data().join("standby.signal");
        File::create(&signal)?;
        if is_root() {
            chown(&signal, Some(NOBODY), Some(NOBODY))?;
        }
        self.start_again()
    }

    fn try_start(&mut self, end: Instant) -> anyhow::Result<()> {
        let said = self.folder.path().join("log");
        let log = File::create(&said)?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let mut server = command.stdout(Stdio::null()).stderr(log).spawn()?;
        loop {
            let text = std::fs::read_to_string(&said).unwrap_or_default();
            let ready = ["connections", "read-only connections"];
            let says = |what| text.contains(&format!("database system is ready to accept {what}"));
            if ready.iter().any(says) {
                self.server = Some(server);
                return Ok(());
            }
            if server.try_wait()?.is_some() || Instant::now() >= end {
                drop(server.kill());
                drop(server.wait());
                bail!("postgres does not start: {text}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Stops the server and waits until it is gone.
    ///
    /// # Errors
    /// Returns what failed.
    pub fn stop(&mut self, how: Stop) -> anyhow::Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let pid = Pid::from_child(&server);
        match how {
            Stop::Fast => kill_process(pid, Signal::INT)?,
            Stop::Immediate => kill_process(pid, Signal::QUIT)?,
            Stop::Kill => {
                // The postmaster first, so that it does not restart the others.
                let children = children_of(pid);
                kill_process(pid, Signal::KILL)?;
                for child in children {
                    // It may have ended by itself.
                    let _ = kill_process(child, Signal::KILL);
                }
            }
        }
        server.wait()?;
        Ok(())
    }

    /// Stops one process of the server where it is, without a word to anyone.
    ///
    /// # Errors
    /// Returns that there is no such process.
    pub fn freeze(&self, pid: i32) -> anyhow::Result<()> {
        signal(pid, Signal::STOP)
    }

    /// Lets a process that was frozen go on.
    ///
    /// # Errors
    /// Returns that there is no such process.
    pub fn thaw(&self, pid: i32) -> anyhow::Result<()> {
        signal(pid, Signal::CONT)
    }

    /// Freezes the whole server.
    ///
    /// # Errors
    /// Returns what failed.
    pub fn freeze_all(&self) -> anyhow::Result<()> {
        self.signal_all(Signal::STOP)
    }

    /// Lets the whole server go on.
    ///
    /// # Errors
    /// Returns what failed.
    pub fn thaw_all(&self) -> anyhow::Result<()> {
        self.signal_all(Signal::CONT)
    }

    fn signal_all(&self, what: Signal) -> anyhow::Result<()> {
        let server = self.server.as_ref().context("the server does not run")?;
        let pid = Pid::from_child(server);
        kill_process(pid, what)?;
        for child in children_of(pid) {
            match kill_process(child, what) {
                // Backends come and go.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Makes a new, empty database and returns its address.
    ///
    /// # Errors
    /// Returns what failed.
    pub fn create_database(&self) -> anyhow::Result<String> {
        let name = unique_name();
        create(&self.url(), &name)?;
        Ok(format!("{}/{name}", self.url()))
    }

    /// Returns the address of the cluster, without a database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://outlast@127.0.0.1:{}", self.port)
    }

    /// Returns the port that the server listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Nothing in it is worth keeping.
        drop(self.stop(Stop::Kill));
    }
}

fn signal(pid: i32, what: Signal) -> anyhow::Result<()> {
    Ok(kill_process(Pid::from_raw(pid).context("no process id")?, what)?)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn children_of(parent: Pid) -> Vec<Pid> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}
