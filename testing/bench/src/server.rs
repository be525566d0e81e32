//! The server under measurement: a real process.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// A started server.
pub(crate) struct Server {
    child: Child,
    /// `host:port`.
    pub(crate) address: String,
}

impl Server {
    /// Starts `program server` on a store in `folder` and waits until it listens.
    pub(crate) async fn start(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let mut child = Command::from(std::process::Command::new(program))
            .args(["server", "--listen", "127.0.0.1:0", "--database"])
            .arg(format!("sqlite:{}", folder.join("bench.db").display()))
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("failed to start {}", program.display()))?;
        let stderr = child.stderr.take().context("server has no stderr")?;
        let mut lines = BufReader::new(stderr).lines();
        let address = loop {
            let line = lines.next_line().await?.context("server ended before it listened")?;
            if let Some((_, address)) = line.split_once("listening on http://") {
                break address.trim().to_owned();
            }
        };
        // Keep reading, so that the server never waits for us to.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { child, address })
    }

    /// Returns its resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> anyhow::Result<u64> {
        let pid = self.child.id().context("server has ended")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
        let number = line.split_whitespace().nth(1).context("no number")?;
        Ok(number.parse()?)
    }

    /// Stops it in order.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().context("server has ended")?;
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid)?).context("no pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        tokio::time::timeout(Duration::from_secs(40), self.child.wait()).await??;
        Ok(())
    }
}
