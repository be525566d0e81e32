//! One interpreter that is started ahead, from its launch until an attempt takes it or it ends.
//!
//! What is launched is the shim of an attempt, with all that joins it to the engine. Its interpreter is
//! inside its namespace already, and `ahead.js` is its program.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use outlast_packs::environment::InUse;
use rustix::process::Pid;
use tokio::io::AsyncWriteExt as _;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

use super::WarmKey;
use super::start::{END_MAX, IMPORTS_MAX, Launch, Trouble, broken, last_line};
use crate::OwnProgram;
use crate::process::launch::{Launched, launch};
use crate::process::memory;
use crate::process::protocol::{AheadProgram, Report, ShimTask};
use crate::process::sys;

/// Its program, which it reads from its link.
const PROGRAM: &str = include_str!("ahead.js");

/// Evaluates what comes first by the link, whose number is the argument that follows. `import` is looked
/// for beside the program that has the word, which is in the folder that it was started in.
const BEGINNING: &str = "{const l=+process.argv[1],b=Buffer.alloc(1<<18);(0,eval)(b.toString('utf8',0,\
    require('fs').readSync(l,b)))(l,require,n=>import(n))}";

/// How long the argument is that makes room in the list of processes for what attempts show.
const ROOM: usize = 1024;

/// How long a shim may take to say that it is there.
const THERE_MAX: Duration = Duration::from_millis(500);

/// An interpreter that waits, in the shim of its attempt. Both are killed when this is dropped.
pub(super) struct Ahead {
    shim: Option<Launched>,
    interpreter: Option<Pid>,
    /// Not to be removed while it waits.
    _environment: Option<InUse>,
}

impl Ahead {
    /// Launches one and waits until it has imported all, or is unwanted.
    pub(super) async fn start(
        program: &OwnProgram,
        what: Launch,
        environment: Option<InUse>,
        unwanted: impl Future<Output = ()>,
    ) -> Result<Self, Trouble> {
        let launched = launch(program, &what.label(), None).await.map_err(broken)?;
        let mut ahead = Self { shim: Some(launched), interpreter: None, _environment: environment };
        ahead.send(&ShimTask::Ahead(Box::new(program_of(what)))).await.map_err(broken)?;
        let waiting = tokio::select! {
            waiting = timeout(IMPORTS_MAX, ahead.until_waiting()) => waiting,
            () = unwanted => Ok(Err(Trouble::Broken("it is not wanted any more".to_owned()))),
        };
        waiting.unwrap_or_else(|_late| Err(Trouble::late()))?;
        Ok(ahead)
    }

    async fn send(&mut self, task: &ShimTask) -> io::Result<()> {
        let Some(shim) = &mut self.shim else { return Ok(()) };
        let mut line = serde_json::to_vec(task)?;
        line.push(b'\n');
        shim.orders.write_all(&line).await
    }

    /// The next report; none when the shim is gone.
    async fn report(&mut self) -> Option<Report> {
        let line = self.shim.as_mut()?.reports.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }

    async fn until_waiting(&mut self) -> Result<(), Trouble> {
        loop {
            let report = self.report().await;
            let printed = || {
                let shim = self.shim.as_ref()?;
                [&shim.stdout, &shim.stderr].into_iter().find_map(last_line)
            };
            match report {
                Some(Report::Holding { init }) => {
                    let watched = Pid::from_raw(init).and_then(|init| sys::watch_end(init).ok());
                    if let Some(shim) = &mut self.shim {
                        shim.namespace = watched;
                    }
                }
                Some(Report::Waiting { pid }) => {
                    if let Some(line) = printed() {
                        return Err(Trouble::prints(&line));
                    }
                    self.interpreter = pid.and_then(Pid::from_raw);
                    return Ok(());
                }
                Some(Report::Unfit { why: Some(why) }) => return Err(Trouble::Unfit(why)),
                Some(Report::SpawnFailed(failure)) => return Err(Trouble::Broken(failure.reason)),
                None | Some(Report::Unfit { why: None } | Report::Empty) => {
                    return Err(Trouble::ended(printed()));
                }
                Some(_) => {}
            }
        }
    }

    /// The memory of the interpreter that is its own, in bytes.
    pub(super) fn memory(&self) -> Option<u64> {
        memory::own_bytes(self.interpreter?)
    }

    /// Announces the end of its shim, which ends when the interpreter does.
    pub(super) fn watch(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let shim = self.shim.as_ref().ok_or_else(|| io::Error::other("it was taken"))?;
        sys::watch_end(shim.process.pid())
    }

    /// Hands over its shim, if that is there.
    pub(super) async fn take(mut self) -> Option<Launched> {
        let answers = async {
            self.send(&ShimTask::Ping).await.ok()?;
            matches!(self.report().await?, Report::Here).then_some(())
        };
        timeout(THERE_MAX, answers).await.ok().flatten()?;
        self.shim.take()
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let Some(Launched { process, .. }) = self.shim.take() else { return };
        // The inner half and all that is in its namespace die with the outer one.
        process.kill_group();
        // Without a runtime the engine ends, and its guardian reaps what it leaves.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(process.reap(END_MAX));
        }
    }
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("interpreter", &self.interpreter).finish_non_exhaustive()
    }
}

fn program_of(what: Launch) -> AheadProgram {
    let messages = vec![PROGRAM.trim().to_owned(), config(&what.key)];
    // The folder that `import` begins at.
    let folder = what.key.folder.clone();
    let program = what.program(["-e".to_owned(), BEGINNING.to_owned()], folder);
    AheadProgram { program, room: ROOM, messages }
}

/// What the program reads second: its name, how many options attempts have, where to import from and how,
/// the working folder, and what to import.
fn config(key: &WarmKey) -> String {
    let (options, imports) =
        (key.options.len().to_string(), if key.imports { "import" } else { "" });
    let (folder, cwd) = (key.folder.to_string_lossy(), key.cwd.to_string_lossy());
    let first = [key.pack.as_str(), &options, &folder, imports, &cwd];
    first.into_iter().chain(key.preload.iter().map(String::as_str)).collect::<Vec<_>>().join("\0")
}
