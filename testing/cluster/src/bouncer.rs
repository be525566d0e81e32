//! A throw-away PgBouncer in front of a cluster.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use crate::{Cluster, LIMIT, NOBODY, is_root};

/// How a pooler lends its connections to PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Until the client goes.
    Session,
    /// Until the transaction ends.
    Transaction,
    /// Until the statement ends.
    Statement,
}

/// A pooler of our own.
#[derive(Debug)]
pub struct Bouncer {
    port: u16,
    process: Child,
    _folder: TempDir,
}

impl Bouncer {
    /// Starts a pooler in front of a cluster, with further lines of its configuration.
    ///
    /// # Errors
    /// Returns what is missing or failed.
    pub fn start(cluster: &Cluster, pooling: Pooling, more: &str) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("outlast-pool-").tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mode = match pooling {
            Pooling::Session => "session",
            Pooling::Transaction => "transaction",
            Pooling::Statement => "statement",
        };
        let users = folder.path().join("users");
        std::fs::write(&users, "\"outlast\" \"\"\n")?;
        let config = folder.path().join("config");
        std::fs::write(
            &config,
            format!(
                "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                 listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
                 pool_mode = {mode}\ndefault_pool_size = 60\nmax_client_conn = 200\n{more}\n",
                cluster.port(),
                users.display()
            ),
        )?;
        let mut command = Command::new(program()?);
        command.arg("-q").arg(&config).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        if is_root() {
            for path in [folder.path(), users.as_path(), config.as_path()] {
                chown(path, Some(NOBODY), Some(NOBODY))?;
            }
            command.uid(NOBODY).gid(NOBODY);
        }
        let mut process = command.spawn().context("pgbouncer")?;
        let end = Instant::now() + LIMIT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = process.try_wait()? {
                bail!("pgbouncer does not start: {status}");
            }
            if Instant::now() >= end {
                drop(process.kill());
                drop(process.wait());
                bail!("pgbouncer does not listen");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { port, process, _folder: folder })
    }

    /// Returns the address of a database behind the pooler, given its own address.
    #[must_use]
    pub fn before(&self, cluster: &Cluster, database: &str) -> String {
        database.replace(&format!(":{}/", cluster.port()), &format!(":{}/", self.port))
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Finds the program: a user's PATH may lack the folder that it is in.
fn program() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let mut programs = folders.map(|folder| folder.join("pgbouncer"));
    programs.find(|program| program.exists()).context("pgbouncer is missing: install pgbouncer")
}
