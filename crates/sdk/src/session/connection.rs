//! The engine's end of the session: down, connecting, or up.

use std::future::pending;
use std::time::Duration;

use outlast_proto::v1::{Hello, ServerMessage, WorkerMessage};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::servers::ServerNumber;
use crate::session::backoff::Backoff;
use crate::session::{Address, AttachError, Attached, Session};

/// Whether there is a session.
#[derive(Debug)]
pub(crate) struct Connection {
    address: Address,
    /// The server of the latest session, or of the one that is being made.
    server: ServerNumber,
    state: State,
    backoff: Backoff,
}

#[derive(Debug)]
enum State {
    /// Connects when this instant has come.
    Down(Instant),
    Connecting(JoinHandle<Result<Attached, AttachError>>),
    Up(Box<Session>),
    /// Left for good.
    Closed,
}

/// What happened on the link.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    /// It is time to connect: call [`Connection::connect`].
    Due,
    Attached(Box<Attached>),
    NotAttached(AttachError),
    Message(ServerMessage),
    Lost(String),
}

impl Connection {
    pub(crate) fn new(address: Address) -> Self {
        let (server, state) = (address.servers().used(), State::Down(Instant::now()));
        Self { address, server, state, backoff: Backoff::default() }
    }

    /// Waits for the next event. Safe to drop while waiting: nothing is lost.
    pub(crate) async fn next(&mut self) -> ConnectionEvent {
        match &mut self.state {
            State::Down(due) => {
                tokio::time::sleep_until(*due).await;
                ConnectionEvent::Due
            }
            State::Connecting(task) => match task.await {
                Ok(Ok(attached)) => ConnectionEvent::Attached(Box::new(attached)),
                Ok(Err(error)) => ConnectionEvent::NotAttached(error),
                Err(_) => ConnectionEvent::NotAttached(AttachError::OutOfReach(
                    "connecting failed".to_owned(),
                )),
            },
            State::Up(session) => {
                let lost = match session.incoming.message().await {
                    Ok(Some(message)) => return ConnectionEvent::Message(message),
                    Ok(None) => "server ended the stream".to_owned(),
                    Err(status) => status.message().to_owned(),
                };
                self.address.servers().move_on(self.server);
                ConnectionEvent::Lost(lost)
            }
            State::Closed => pending().await,
        }
    }

    /// Begins to read the token again, for this connection and the heartbeat's.
    pub(crate) fn read_token_again(&self) {
        let address = self.address.clone();
        drop(tokio::spawn(async move { address.read_token_again().await }));
    }

    /// Starts to connect and attach.
    pub(crate) fn connect(&mut self, hello: Hello, interval: Duration) {
        let address = self.address.clone();
        self.server = address.servers().used();
        self.set(State::Connecting(tokio::spawn(address.attach(self.server, hello, interval))));
    }

    pub(crate) fn up(&mut self, session: Session) {
        self.backoff.reset();
        self.set(State::Up(Box::new(session)));
    }

    /// Drops whatever there is and connects again after a pause.
    pub(crate) fn retry_later(&mut self) {
        let wait = self.backoff.next(rand::random());
        self.set(State::Down(Instant::now() + wait));
    }

    pub(crate) fn close(&mut self) {
        self.set(State::Closed);
    }

    /// Takes the session to say goodbye on.
    pub(crate) fn take(&mut self) -> Option<Session> {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Up(session) => Some(*session),
            State::Connecting(task) => {
                task.abort();
                None
            }
            State::Down(_) | State::Closed => None,
        }
    }

    pub(crate) fn session_number(&self) -> Option<u64> {
        match &self.state {
            State::Up(session) => Some(session.number),
            State::Down(_) | State::Connecting(_) | State::Closed => None,
        }
    }

    pub(crate) fn outgoing(&self) -> Option<&mpsc::Sender<WorkerMessage>> {
        match &self.state {
            State::Up(session) => Some(&session.outgoing),
            State::Down(_) | State::Connecting(_) | State::Closed => None,
        }
    }

    fn set(&mut self, state: State) {
        if let State::Connecting(task) = &self.state {
            // Finished already when this follows its result.
            task.abort();
        }
        self.state = state;
    }
}
