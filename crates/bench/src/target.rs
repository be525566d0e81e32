//! The server that is measured: one that was named, or one of our own on a temporary store.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use outlast_cli_core::client::ClientConfig;
use outlast_cli_core::exit::Failure;
use outlast_cli_core::process::Child;
use rustix::process::Signal;
use tempfile::TempDir;
use uuid::Uuid;

use crate::connection::Address;
use crate::scratch::Scratch;
use crate::server;

/// Longest wait for our server to stop.
const STOP_MAX: Duration = Duration::from_secs(40);
/// An address whose port the system chooses.
const ANY_PORT: &str = "127.0.0.1:0";

/// A server to measure.
#[derive(Debug)]
pub(crate) struct Target {
    // Dropped in this order: a server that still runs is killed before its store is removed.
    server: Option<Child>,
    folder: Option<TempDir>,
    scratch: Option<Scratch>,
    config: ClientConfig,
    address: Address,
    /// Unique, so that no job of other users is taken.
    queue: String,
}

impl Target {
    /// A server that was named, and is neither started nor stopped here.
    pub(crate) fn named(config: ClientConfig) -> Result<Self, Failure> {
        let address = Address::of(&config)?;
        let id = Uuid::now_v7().simple().to_string();
        // The end of it: the beginning is the time, which two runs may share.
        let queue = format!("bench-{}", id.get(20..).unwrap_or(&id));
        Ok(Self { server: None, folder: None, scratch: None, config, address, queue })
    }

    /// Starts a server on a new store in `folder`, or in a new PostgreSQL database. The store is
    /// removed together with the target.
    pub(crate) async fn own(folder: TempDir, database: Option<&str>) -> Result<Self, Failure> {
        let scratch = match database {
            Some(url) => Some(Scratch::create(url).await?),
            None => None,
        };
        let store = store(scratch.as_ref(), folder.path());
        let server = server::start(folder.path(), "server", store, ANY_PORT)?;
        let target = Self::named(ClientConfig::plain(server::address(&server).await?))?;
        Ok(Self { server: Some(server), folder: Some(folder), scratch, ..target })
    }

    pub(crate) const fn config(&self) -> &ClientConfig {
        &self.config
    }

    pub(crate) const fn address(&self) -> &Address {
        &self.address
    }

    /// Whether the server is one of our own.
    pub(crate) const fn is_own(&self) -> bool {
        self.server.is_some()
    }

    /// The queue that is measured.
    pub(crate) fn queue(&self) -> &str {
        &self.queue
    }

    /// Resident memory of our own server.
    pub(crate) fn resident_kib(&self) -> Option<u64> {
        self.server.as_ref().map(|server| server.resident_kib().0)
    }

    /// Kills our own server and starts it again at the same address.
    pub(crate) async fn restart(&mut self) -> Result<(), Failure> {
        let (Some(server), Some(folder)) = (&self.server, &self.folder) else {
            return Err(Failure::failed("only a server of its own can be restarted"));
        };
        server.signal(Signal::KILL);
        server.ended().await;
        let listen = self.config.server.trim_start_matches("http://");
        let store = store(self.scratch.as_ref(), folder.path());
        let server = server::start(folder.path(), "server", store, listen)?;
        server::address(&server).await?;
        self.server = Some(server);
        Ok(())
    }

    /// Starts another server on the same store, with the same queue.
    pub(crate) async fn second_server(&self) -> Result<Self, Failure> {
        let Some(folder) = &self.folder else {
            return Err(Failure::failed("only a server of its own can have a second one"));
        };
        let store = store(self.scratch.as_ref(), folder.path());
        let server = server::start(folder.path(), "server-2", store, ANY_PORT)?;
        let target = Self::named(ClientConfig::plain(server::address(&server).await?))?;
        Ok(Self { server: Some(server), queue: self.queue.clone(), ..target })
    }

    /// Stops our own server and removes its store.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        if let Some(server) = &self.server {
            server.stop(STOP_MAX).await?;
        }
        match self.scratch {
            Some(scratch) => scratch.remove().await,
            None => Ok(()),
        }
    }
}

fn store(scratch: Option<&Scratch>, folder: &Path) -> OsString {
    scratch.map_or_else(|| server::sqlite_in(folder), |scratch| scratch.url().into())
}
