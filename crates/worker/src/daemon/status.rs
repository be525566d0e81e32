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
use tokio::task::JoinSet;

use super::work_root;

/// The socket's name in the work folder.
const SOCKET: &str = "status";

/// The file in the work folder that holds its name.
const NAME: &str = "name";

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
    // For the case that the socket does not answer.
    if let Err(error) = std::fs::write(folder.join(NAME), &source.name) {
        tracing::debug!(%error, "cannot write the worker's name");
    }
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

/// What the workers of a host say.
#[derive(Debug, Default)]
pub struct Asked {
    /// How those are that answer.
    pub workers: Vec<WorkerStatus>,
    /// The names of those that live and do not answer: their loops stand still.
    pub silent: Vec<String>,
}

/// Asks the workers whose work folders are below `parent`, all at once. What dead ones left is passed
/// over.
pub async fn ask_all(parent: Option<&Path>) -> Asked {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
    let mut all = JoinSet::new();
    for folder in work_root::folders(&parent) {
        all.spawn(ask(folder));
    }
    let mut asked = Asked::default();
    while let Some(answer) = all.join_next().await {
        match answer {
            Ok(Some(Ok(status))) => asked.workers.push(status),
            Ok(Some(Err(name))) => asked.silent.push(name),
            Ok(None) | Err(_) => {}
        }
    }
    asked
}

/// Asks one worker; without an answer in time, its name.
async fn ask(folder: PathBuf) -> Option<Result<WorkerStatus, String>> {
    // The socket of a dead engine refuses, and another user's cannot be opened.
    let stream = UnixStream::connect(folder.join(SOCKET)).await.ok()?;
    match tokio::time::timeout(ANSWER_MAX, read(stream)).await {
        Ok(Ok(Some(status))) => Some(Ok(status)),
        // It ended just now.
        Ok(Ok(None) | Err(_)) => None,
        Err(_elapsed) => {
            let name = std::fs::read_to_string(folder.join(NAME));
            Some(Err(name.unwrap_or_else(|_unnamed| folder.display().to_string())))
        }
    }
}

async fn read(stream: UnixStream) -> io::Result<Option<WorkerStatus>> {
    let mut text = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut text).await?;
    Ok(serde_json::from_str(&text).ok())
}
