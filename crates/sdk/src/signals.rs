//! Signals of the process, for a worker that is the whole process.
//!
//! ```text
//! SIGTERM, SIGINT   first: drain    second: force    third: exit 1 at once
//! SIGTSTP           quiet           SIGCONT          take work again
//! ```
//!
//! They are handled on a thread of their own: a handler that blocks the runtime cannot keep the
//! process from being terminated.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use outlast_core::worker::lifecycle::StageEvent;
use rustix::process::Signal as Number;
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::worker::control::Control;

/// Workers of this process that listen to signals and have not ended.
static SERVED: AtomicUsize = AtomicUsize::new(0);

/// How often SIGTERM and SIGINT are passed on; then the process ends.
const PASSED_ON: u32 = 2;

/// Exit code of a process that was terminated a third time.
const AT_ONCE: i32 = 1;

/// Passes signals on for as long as it lives.
#[derive(Debug)]
pub(crate) struct Signals {
    _private: (),
}

impl Signals {
    /// Takes the signals over from the system's default, for the rest of the process's life.
    pub(crate) async fn listen(control: Control) -> io::Result<Self> {
        // Before the first signal can come: without a worker it would end the process.
        SERVED.fetch_add(1, Ordering::AcqRel);
        let served = Self { _private: () };
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (ready, listens) = oneshot::channel();
        std::thread::Builder::new().name("signals".to_owned()).stack_size(128 * 1024).spawn(
            move || {
                runtime.block_on(async {
                    let listener = Listener::new();
                    match listener {
                        Ok(listener) => {
                            // The caller may be gone already.
                            let _ = ready.send(Ok(()));
                            listener.pass_on(&control).await;
                        }
                        Err(error) => {
                            let _ = ready.send(Err(error));
                        }
                    }
                });
            },
        )?;
        listens.await.map_err(io::Error::other)??;
        Ok(served)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        SERVED.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Listener {
    terminate: Signal,
    interrupt: Signal,
    quiet: Signal,
    resume: Signal,
}

impl Listener {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quiet: signal(SignalKind::from_raw(Number::TSTP.as_raw()))?,
            resume: signal(SignalKind::from_raw(Number::CONT.as_raw()))?,
        })
    }

    async fn pass_on(mut self, control: &Control) {
        let mut terminated = 0;
        loop {
            let event = tokio::select! {
                Some(()) = self.terminate.recv() => StageEvent::TerminateSignal,
                Some(()) = self.interrupt.recv() => StageEvent::TerminateSignal,
                Some(()) = self.quiet.recv() => StageEvent::StopSignal,
                Some(()) = self.resume.recv() => StageEvent::ContinueSignal,
                else => return,
            };
            if event == StageEvent::TerminateSignal {
                terminated += 1;
                // A worker that has drained has nothing left to wait for.
                let all_ended = SERVED.load(Ordering::Acquire) == 0;
                if terminated > PASSED_ON || all_ended {
                    tracing::warn!("terminated again: exiting at once");
                    exit_at_once();
                }
            }
            control.send(event);
        }
    }
}

#[expect(clippy::exit, reason = "that is what the third signal asks for")]
fn exit_at_once() -> ! {
    std::process::exit(AT_ONCE)
}
