//! Heartbeats: a thread, a runtime and a connection of their own.
//!
//! ```text
//! wait interval ± 10 % ─▶ beat ─▶ answered: lease renewed, the engine told
//!                           ├─▶ refused: again soon, then less and less often
//!                           └─▶ no answer in time: the same, on a new connection
//! ```
//!
//! Nothing that the engine does, not even blocking its runtime, delays a beat; and a failed beat
//! does not stop the worker. Beats go on until [`Heartbeat::last`].

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::id::WorkerId;
use outlast_core::time::{BootTime, Span};
use outlast_proto::v1::session_client::SessionClient;
use outlast_proto::v1::{BeatReply, BeatRequest};
use tokio::sync::{mpsc, oneshot};
use tonic::Code;
use tonic::transport::Channel;

use crate::clock::{boot_now, duration};
use crate::outcome::Ends;
use crate::servers::ServerNumber;
use crate::session::{Address, client, request_deadline};
use crate::watchdog;
use crate::worker_state::{Terms, WorkerState};

/// Shortest time limit of a beat: below that, a busy host could never answer in time.
const DEADLINE_MIN: Duration = Duration::from_millis(150);

/// Shortest wait after a failed beat. It doubles, up to an interval: the first few come well
/// within a lease, and a server in trouble is not overloaded by its workers.
const RETRY_MIN: Duration = Duration::from_millis(100);

/// How long the last beat may take.
const LAST_MAX: Duration = Duration::from_secs(1);

/// The answer to a beat, for the engine.
#[derive(Debug)]
pub(crate) struct BeatAnswer {
    /// The worker that it was for; the identity may have changed since.
    pub(crate) worker: WorkerId,
    pub(crate) reply: BeatReply,
}

/// A command of the engine to the thread.
#[derive(Debug)]
enum Word {
    /// Beat now: something happened that must be known before anything is reported.
    Now,
    /// Beat once more, then end.
    Last(oneshot::Sender<()>),
}

/// The engine's end of the heartbeat. When it is dropped the thread ends.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    words: mpsc::UnboundedSender<Word>,
}

impl Heartbeat {
    /// Starts the thread. It is silent until the worker is registered.
    pub(crate) fn start(
        address: Address,
        state: Arc<WorkerState>,
        beaten: mpsc::UnboundedSender<BeatAnswer>,
        ends: Ends,
    ) -> std::io::Result<Self> {
        let (words, queue) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let route = Route::new(address.servers().used());
        let pulse = Pulse { address, route, state, beaten, client: None };
        std::thread::Builder::new().name("heartbeat".to_owned()).stack_size(256 * 1024).spawn(
            move || {
                runtime.block_on(async move {
                    // Not a task of its own: its end would go unnoticed.
                    let watch = watchdog::watch(Arc::clone(&pulse.state), ends);
                    tokio::select! {
                        () = pulse.run(queue) => {}
                        () = watch => {}
                    }
                });
            },
        )?;
        Ok(Self { words })
    }

    /// Asks for a beat at once.
    pub(crate) fn beat_now(&self) {
        // Closed only after the last beat.
        let _ = self.words.send(Word::Now);
    }

    /// Beats once more and ends the thread, within a bounded time.
    pub(crate) async fn last(self) {
        let (done, ended) = oneshot::channel();
        if self.words.send(Word::Last(done)).is_ok() {
            let _ = ended.await;
        }
    }
}

struct Pulse {
    address: Address,
    route: Route,
    state: Arc<WorkerState>,
    beaten: mpsc::UnboundedSender<BeatAnswer>,
    client: Option<(ServerNumber, SessionClient<Channel>)>,
}

impl Pulse {
    async fn run(mut self, mut words: mpsc::UnboundedReceiver<Word>) {
        let mut failures = 0_u32;
        let mut wait = Duration::ZERO;
        loop {
            let word = tokio::select! {
                biased;
                word = words.recv() => Some(word),
                () = tokio::time::sleep(wait) => None,
            };
            let word = match word {
                Some(None) => return,
                Some(Some(Word::Last(done))) => return self.last(done).await,
                Some(Some(Word::Now)) | None => tokio::select! {
                    biased;
                    ok = self.beat() => {
                        failures = if ok { 0 } else { failures.saturating_add(1) };
                        None
                    }
                    word = last_word(&mut words) => Some(word),
                },
            };
            if let Some(word) = word {
                if let Some(done) = word {
                    self.last(done).await;
                }
                return;
            }
            wait = self.wait(failures);
        }
    }

    async fn last(mut self, done: oneshot::Sender<()>) {
        let _ = tokio::time::timeout(LAST_MAX, self.beat()).await;
        let _ = done.send(());
    }

    fn wait(&self, failures: u32) -> Duration {
        let reported = self.state.reported();
        let interval = duration(reported.terms.interval);
        let live = reported.live;
        drop(reported);
        if !live {
            return interval.min(Duration::from_millis(50));
        }
        match failures.checked_sub(1) {
            None => interval.mul_f64(rand::random_range(0.9..1.1)),
            Some(again) => retry_wait(interval, again).mul_f64(rand::random_range(0.5..1.0)),
        }
    }

    /// Sends one beat; false if it was not answered.
    async fn beat(&mut self) -> bool {
        let sent = boot_now();
        let Some((worker, request)) = self.state.beat(sent) else { return true };
        let sent_held = !request.held.is_empty();
        let interval = duration(self.state.reported().terms.interval);
        let bound = request_deadline(interval).max(DEADLINE_MIN);
        let servers = self.address.servers();
        let server = servers.after(servers.used(), self.route.places(servers.used()));
        match tokio::time::timeout(bound, self.send(server, request, interval)).await {
            Ok(Ok(reply)) => {
                self.route.went_well();
                self.answered(worker, sent, reply);
                return true;
            }
            // The server answered, so the connection works; the server has a problem of its own.
            Ok(Err(Failure::Refused(reason))) => tracing::debug!(reason, "heartbeat not accepted"),
            Ok(Err(Failure::Connection(reason))) => {
                tracing::debug!(reason, "heartbeat not answered");
                self.client = None;
            }
            // The next beat does not reuse a silent connection.
            Err(_) => {
                tracing::debug!(?bound, "heartbeat not answered in time");
                self.client = None;
            }
        }
        self.route.failed();
        if sent_held {
            self.state.reported().send_held = true;
        }
        false
    }

    async fn send(
        &mut self,
        server: ServerNumber,
        request: BeatRequest,
        interval: Duration,
    ) -> Result<BeatReply, Failure> {
        let request = self.address.request(request);
        if self.client.as_ref().is_none_or(|(connected, _)| *connected != server) {
            let channel = self.address.connect(server, interval).await;
            self.client = Some((server, client(channel.map_err(Failure::Connection)?)));
        }
        let Some((_, client)) = &mut self.client else {
            return Err(Failure::Connection("not connected".to_owned()));
        };
        match client.beat(request).await {
            Ok(reply) => Ok(reply.into_inner()),
            // A status that came over the wire has no cause on this side.
            Err(status) if status.source().is_none() => {
                if matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied) {
                    self.address.read_token_again().await;
                }
                Err(Failure::Refused(status.message().to_owned()))
            }
            Err(status) => Err(Failure::Connection(status.message().to_owned())),
        }
    }

    fn answered(&self, worker: WorkerId, sent: BootTime, reply: BeatReply) {
        let mut reported = self.state.reported();
        if reported.worker != worker {
            return;
        }
        if reply.send_held {
            reported.send_held = true;
        }
        let before = reported.terms;
        drop(reported);
        if reply.renewed {
            // A beat may be answered by a server that has not read this worker's terms yet
            // and tells its own: only a welcome makes them longer. Beating too often does no
            // harm, and trusting a lease for too short a time neither.
            let terms = Terms {
                interval: span_or(reply.heartbeat_interval_ms, before.interval)
                    .min(before.interval),
                lease: span_or(reply.lease_ms, before.lease).min(before.lease),
            };
            self.state.renewed(sent, terms);
        }
        // Closed only when the engine has ended.
        let _ = self.beaten.send(BeatAnswer { worker, reply });
    }
}

/// Beats go to the server of the session. A beat that fails is repeated at the next server, although the
/// session may live on. After some successful beats there, the server of the session is tried again.
#[derive(Debug)]
struct Route {
    of_session: ServerNumber,
    /// How many places after that server beats go to.
    places: usize,
    /// How many have gone there.
    went_well: u32,
}

/// How many beats go to another server before that of the session is tried again.
const BEATS_ELSEWHERE: u32 = 10;

impl Route {
    const fn new(of_session: ServerNumber) -> Self {
        Self { of_session, places: 0, went_well: 0 }
    }

    /// How many places after the server of the session the next beat goes to.
    fn places(&mut self, of_session: ServerNumber) -> usize {
        if of_session != self.of_session {
            *self = Self::new(of_session);
        }
        self.places
    }

    fn failed(&mut self) {
        self.places = self.places.wrapping_add(1);
        self.went_well = 0;
    }

    fn went_well(&mut self) {
        self.went_well = self.went_well.saturating_add(1);
        if self.went_well >= BEATS_ELSEWHERE {
            *self = Self::new(self.of_session);
        }
    }
}

/// Why a beat renewed nothing.
enum Failure {
    /// The server said so.
    Refused(String),
    /// Nothing came back.
    Connection(String),
}

/// How long to wait at most before the beat after `again` further failures.
fn retry_wait(interval: Duration, again: u32) -> Duration {
    let first = RETRY_MIN.min(interval);
    first.saturating_mul(2_u32.saturating_pow(again.min(16))).min(interval)
}

/// Waits for the word that ends the thread; `None` if the engine is gone.
async fn last_word(words: &mut mpsc::UnboundedReceiver<Word>) -> Option<oneshot::Sender<()>> {
    loop {
        match words.recv().await {
            Some(Word::Last(done)) => return Some(done),
            // The beat that is under way was asked for before: that is soon enough.
            Some(Word::Now) => {}
            None => return None,
        }
    }
}

/// A server that does not send a term leaves it as it was.
pub(crate) const fn span_or(ms: u64, otherwise: Span) -> Span {
    if ms == 0 { otherwise } else { Span::from_millis(ms) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BEATS_ELSEWHERE, Route, retry_wait};
    use crate::servers::ServerNumber;

    #[test]
    fn beats_go_round_until_one_is_answered_and_come_back_after_some() {
        let session = ServerNumber::default();
        let mut route = Route::new(session);
        route.failed();
        route.failed();
        assert_eq!(route.places(session), 2);
        (1..BEATS_ELSEWHERE).for_each(|_| route.went_well());
        assert_eq!(route.places(session), 2);
        route.went_well();
        assert_eq!(route.places(session), 0);
    }

    #[test]
    fn beats_that_fail_are_tried_again_soon_and_then_no_more_often_than_usual() {
        let interval = Duration::from_secs(5);
        let waits: Vec<_> = (0..10).map(|again| retry_wait(interval, again).as_millis()).collect();
        assert_eq!(waits[..4], [100, 200, 400, 800]);
        assert_eq!(waits[9], 5000);
        assert_eq!(retry_wait(Duration::from_millis(50), 3), Duration::from_millis(50));
    }
}
