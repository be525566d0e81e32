//! Where it is measured: a server that was named, or one of our own on a temporary store.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use outlast_store_postgres::ceiling::Scratch;
use rustix::process::Signal;
use tempfile::TempDir;
use uuid::Uuid;

use super::super::dev::SERVER_START_MAX;
use super::ceilings::unusable;
use super::connection::Address;
use crate::config::client::ClientConfig;
use crate::exit::Failure;
use crate::process::{Child, Echo, Launch};

/// Longest wait for our server to stop.
const STOP_MAX: Duration = Duration::from_secs(40);

/// A server to measure.
#[derive(Debug)]
pub(super) struct Place {
    // Dropped in this order: killed, if it still runs, before its store is removed.
    server: Option<Child>,
    /// Its end removes the store.
    folder: Option<TempDir>,
    scratch: Option<Scratch>,
    config: ClientConfig,
    address: Address,
    /// Named so that nobody else's job is taken.
    queue: String,
}

impl Place {
    /// A server that somebody else runs.
    pub(super) fn named(config: ClientConfig) -> Result<Self, Failure> {
        Self::at(config)
    }

    /// Starts a server on a new store in `folder`, or in a new database of PostgreSQL; the
    /// store ends with it.
    pub(super) async fn own(folder: TempDir, database: Option<&str>) -> Result<Self, Failure> {
        let scratch = match database {
            Some(url) => Some(Scratch::create(url).await.map_err(|error| unusable(&error))?),
            None => None,
        };
        let args = match &scratch {
            Some(scratch) => args_of(scratch.url().into(), folder.path(), "127.0.0.1:0"),
            None => server_args(folder.path(), "127.0.0.1:0"),
        };
        let (server, url) = started(start(folder.path(), "server", args)?).await?;
        let place = Self::at(ClientConfig::plain(url))?;
        Ok(Self { server: Some(server), folder: Some(folder), scratch, ..place })
    }

    fn at(config: ClientConfig) -> Result<Self, Failure> {
        let address = Address::of(&config)?;
        let id = Uuid::now_v7().simple().to_string();
        // The end of it: the beginning is the time, which two runs may share.
        let queue = format!("bench-{}", id.get(20..).unwrap_or(&id));
        Ok(Self { server: None, folder: None, scratch: None, config, address, queue })
    }

    pub(super) const fn config(&self) -> &ClientConfig {
        &self.config
    }

    pub(super) const fn address(&self) -> &Address {
        &self.address
    }

    pub(super) const fn is_embedded(&self) -> bool {
        self.server.is_some()
    }

    /// The queue that is measured here.
    pub(super) fn queue(&self) -> &str {
        &self.queue
    }

    /// Resident memory of our own server.
    pub(super) fn resident_kib(&self) -> Option<u64> {
        self.server.as_ref().map(|server| server.resident_kib().0)
    }

    /// Kills our own server and starts it again at the same address.
    pub(super) async fn restart(&mut self) -> Result<(), Failure> {
        let (Some(server), Some(folder)) = (&self.server, &self.folder) else {
            return Err(Failure::failed("a server that somebody else runs is not restarted"));
        };
        server.signal(Signal::KILL);
        server.ended().await;
        let listen = self.config.server.trim_start_matches("http://");
        let args = self.args(folder.path(), listen);
        self.server = Some(started(start(folder.path(), "server", args)?).await?.0);
        Ok(())
    }

    /// Starts another server on the same store, which takes jobs of the same queue.
    pub(super) async fn beside(&self) -> Result<Self, Failure> {
        let Some(folder) = &self.folder else {
            return Err(Failure::failed("a server that somebody else runs gets none beside it"));
        };
        let args = self.args(folder.path(), "127.0.0.1:0");
        let (server, url) = started(start(folder.path(), "server-beside", args)?).await?;
        let place = Self::at(ClientConfig::plain(url))?;
        Ok(Self { server: Some(server), queue: self.queue.clone(), ..place })
    }

    fn args(&self, folder: &Path, listen: &str) -> Vec<OsString> {
        match &self.scratch {
            Some(scratch) => args_of(scratch.url().into(), folder, listen),
            None => server_args(folder, listen),
        }
    }

    /// Stops our own server in order.
    pub(super) async fn leave(self) -> Result<(), Failure> {
        if let Some(server) = &self.server {
            stop(server, STOP_MAX).await?;
        }
        match self.scratch {
            Some(scratch) => scratch.remove().await.map_err(|error| unusable(&error)),
            None => Ok(()),
        }
    }
}

/// Asks a child to stop and waits until it has.
pub(super) async fn stop(child: &Child, limit: Duration) -> Result<(), Failure> {
    child.signal(Signal::TERM);
    let name = child.name();
    match child.ended_within(limit).await {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let how = crate::process::worded(status);
            Err(Failure::failed(format!("{name} ended with {how} when asked to stop")))
        }
        None => Err(Failure::failed(format!("{name} did not stop"))),
    }
}

/// What starts a server on the store and the packs in `folder`.
pub(super) fn server_args(folder: &Path, listen: &str) -> Vec<OsString> {
    let mut database = OsString::from("sqlite:");
    database.push(folder.join("outlast.db"));
    args_of(database, folder, listen)
}

fn args_of(database: OsString, folder: &Path, listen: &str) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["server".into(), "--listen".into(), listen.into()];
    args.extend(["--database".into(), database]);
    let packs = folder.join("packs");
    if packs.is_dir() {
        args.extend(["--packs".into(), packs.into()]);
    }
    args
}

/// Starts a server on the store in `folder` and waits until it listens; returns its address.
pub(super) async fn start_server(folder: &Path, listen: &str) -> Result<(Child, String), Failure> {
    started(start(folder, "server", server_args(folder, listen))?).await
}

async fn started(server: Child) -> Result<(Child, String), Failure> {
    match server.address(SERVER_START_MAX).await {
        Some(url) => Ok((server, url)),
        None => Err(with_lines(Failure::failed("the server did not start"), &server)),
    }
}

/// Starts a child whose log lines go to a file in `folder`.
pub(super) fn start(folder: &Path, name: &str, args: Vec<OsString>) -> Result<Child, Failure> {
    let echo = Echo::File(folder.join(format!("{name}.log")));
    Child::start(Launch { name: name.to_owned(), args, echo })
}

/// Adds what a child said last.
pub(super) fn with_lines(mut failure: Failure, child: &Child) -> Failure {
    let lines = child.last_lines();
    if !lines.is_empty() {
        let said = format!("\n{} said last:\n{}", child.name(), lines.join("\n"));
        failure.message.push_str(&said);
    }
    failure
}

/// A folder that is removed in the end, in `parent` or where temporary files belong.
pub(super) fn folder(parent: Option<&Path>) -> Result<TempDir, Failure> {
    let made = match parent {
        Some(parent) => TempDir::with_prefix_in("outlast-bench-", parent),
        None => TempDir::with_prefix("outlast-bench-"),
    };
    made.map_err(|error| Failure::failed(format!("cannot make a temporary folder: {error}")))
}
