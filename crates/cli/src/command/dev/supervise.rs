//! A child that is restarted when it ends.

use std::ffi::OsString;
use std::time::Duration;

use outlast_cli_core::clock::{self, Moment};
use outlast_cli_core::exit::Failure;
use outlast_cli_core::process::{Child, Echo, Launch, worded};
use tokio::time::Instant;

/// Pause before the first restart, and the longest one.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A child that ran this long had started properly: the pause begins at its minimum again.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// A child with what is needed to start it again.
#[derive(Debug)]
pub(super) struct Supervised {
    name: &'static str,
    args: Vec<OsString>,
    echo: Echo,
    child: Child,
    began: Moment,
    pause: Duration,
    again_at: Option<Instant>,
}

impl Supervised {
    pub(super) fn start(
        name: &'static str,
        args: Vec<OsString>,
        echo: Echo,
    ) -> Result<Self, Failure> {
        let child = launch(name, &args, &echo)?;
        let (began, pause) = (clock::moment(), PAUSE_MIN);
        Ok(Self { name, args, echo, child, began, pause, again_at: None })
    }

    /// The process as it runs now, or as it ended last.
    pub(super) fn child(&self) -> &Child {
        &self.child
    }

    /// Changes the arguments of later starts.
    pub(super) fn start_later_with(&mut self, args: Vec<OsString>) {
        self.args = args;
    }

    /// Waits until the child has ended and the pause after it is over. May be dropped and
    /// called again at any point.
    pub(super) async fn due(&mut self) {
        if self.again_at.is_none() {
            let status = self.child.ended().await;
            let lived = clock::moment().since(self.began);
            if lived > STABLE_AFTER {
                self.pause = PAUSE_MIN;
            }
            let (name, how) = (self.name, worded(status));
            let pause_ms = self.pause.as_millis();
            tracing::warn!(pause_ms, "{name} ended ({how}); restarting it");
            self.again_at = Some(Instant::now() + self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        if let Some(at) = self.again_at {
            tokio::time::sleep_until(at).await;
        }
    }

    /// Starts it again.
    pub(super) fn start_again(&mut self) -> Result<(), Failure> {
        self.child = launch(self.name, &self.args, &self.echo)?;
        self.began = clock::moment();
        self.again_at = None;
        Ok(())
    }
}

fn launch(name: &str, args: &[OsString], echo: &Echo) -> Result<Child, Failure> {
    Child::start(Launch { name: name.to_owned(), args: args.to_vec(), echo: echo.clone() })
}
