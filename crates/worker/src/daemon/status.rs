//! A socket in the work folder that tells how the engine is, to every process that may open it.
//!
//! It is answered by the thread that runs the worker: no answer means that this does not turn.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_sdk::{Control, Stage};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::work_root;

/// The socket's name in the work folder.
const SOCKET: &str = "status";

/// Longest that an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// How long to wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// How a worker on this host is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its name.
    pub name: String,
    /// Its identity at the server; `None` before it has registered.
    pub id: Option<String>,
    /// The process that answers.
    pub pid: u32,
    /// Where it is in its life: `starting`, `running`, `quiet`, `draining` or `stopping`.
    pub stage: String,
    /// Seconds since its loop turned last.
    pub loop_age_seconds: f64,
    /// Seconds until its lease ends; `None` while it has none.
    pub lease_left_seconds: Option<f64>,
    /// Attempts that it holds.
    pub in_flight: usize,
    /// Why it can run nothing; `None` while it is healthy.
    #[serde(default)]
    pub unhealthy: Option<String>,
}

/// What the socket tells.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) control: Control,
    pub(super) stage: watch::Receiver<Stage>,
}

impl Source {
    fn status(&self) -> WorkerStatus {
        let known = self.control.status();
        let registered = known.as_ref().is_some_and(|known| known.worker.is_some());
        let unhealthy = known.as_ref().and_then(|known| known.unhealthy.clone());
        let stage = match *self.stage.borrow() {
            Stage::Running if !registered => "starting",
            Stage::Running if unhealthy.is_some() => "quiet",
            Stage::Running => "running",
            Stage::Quiet(_) => "quiet",
            Stage::Draining => "draining",
            Stage::Stopping | Stage::Forced | Stage::Stopped => "stopping",
        };
        WorkerStatus {
            name: self.name.clone(),
            id: known.as_ref().and_then(|known| known.worker).map(|id| id.to_string()),
            pid: std::process::id(),
            stage: stage.to_owned(),
            loop_age_seconds: known.as_ref().map_or(0.0, |known| known.loop_age.as_secs_f64()),
            lease_left_seconds: known
                .as_ref()
                .and_then(|known| known.lease_left)
                .map(|left| left.as_secs_f64()),
            in_flight: known.map_or(0, |known| known.in_flight),
            unhealthy,
        }
    }
}

/// Answers until dropped. Without the socket the worker works all the same.
pub(super) async fn answer(folder: PathBuf, source: Source) {
    let listener = match UnixListener::bind(folder.join(SOCKET)) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(%error, "no socket for `outlast health worker`");
            return;
        }
    };
    loop {
        match listener.accept().await {
            Ok((mut stream, _)) => {
                let line = serde_json::to_string(&source.status()).unwrap_or_default();
                // Short enough for the socket, whether or not it is read.
                if let Err(error) = stream.write_all(line.as_bytes()).await {
                    tracing::debug!(%error, "cannot say how the worker is");
                }
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Asks the workers whose work folders are below `parent`. One that does not answer in time is an
/// error; what dead ones left is passed over.
///
/// # Errors
/// A worker that lives does not answer.
pub async fn ask_all(parent: Option<&Path>) -> io::Result<Vec<WorkerStatus>> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
    let mut found = Vec::new();
    for folder in work_root::folders(&parent) {
        // The socket of a dead engine refuses, and another user's cannot be opened.
        let Ok(stream) = UnixStream::connect(folder.join(SOCKET)).await else { continue };
        match tokio::time::timeout(ANSWER_MAX, read(stream)).await {
            Ok(Ok(Some(status))) => found.push(status),
            // It ended just now.
            Ok(Ok(None) | Err(_)) => {}
            Err(_elapsed) => {
                let message = format!("the worker of {} does not answer", folder.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
        }
    }
    Ok(found)
}

async fn read(stream: UnixStream) -> io::Result<Option<WorkerStatus>> {
    let mut text = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut text).await?;
    Ok(serde_json::from_str(&text).ok())
}
