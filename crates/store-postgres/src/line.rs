//! The line between servers: `LISTEN` and `NOTIFY` on one connection of its own.
//!
//! What is told is gathered for a moment and sent as one message. A line that breaks is
//! made again, and whoever listens is told that it may have missed something: first it
//! listens again, then it says so, so nothing falls between.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outlast_store::signal::{Heard, Signal};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client};
use uuid::Uuid;

use crate::connect::Address;
use crate::failure::words;

/// The channel.
const CHANNEL: &str = "outlast";
/// Most bytes of hints in a message; PostgreSQL takes 8,000.
const MESSAGE_MAX: usize = 7_000;
/// How long hints are gathered: under load, a message holds many.
const GATHER: Duration = Duration::from_millis(2);
/// Pause before a line that broke is made again: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often a silent line is tried.
const PROBE: Duration = Duration::from_secs(10);

/// Whoever listens.
pub(crate) type Hear = Arc<dyn Fn(Heard) + Send + Sync>;

/// A message on the channel. Programs that enqueue by SQL name nobody.
#[derive(Debug, Serialize, Deserialize)]
struct Message {
    #[serde(default)]
    from: Uuid,
    say: Vec<Signal>,
}

/// One server's end of the line.
#[derive(Debug)]
pub(crate) struct Line {
    own: Uuid,
    telling: UnboundedSender<Signal>,
    told: Mutex<Option<UnboundedReceiver<Signal>>>,
    keeper: Mutex<Option<tokio::task::AbortHandle>>,
}

impl Line {
    pub(crate) fn new() -> Self {
        let (telling, told) = unbounded_channel();
        Self {
            own: Uuid::now_v7(),
            telling,
            told: Mutex::new(Some(told)),
            keeper: Mutex::new(None),
        }
    }

    /// Tells the others, if the line is kept.
    pub(crate) fn tell(&self, signals: Vec<Signal>) {
        for signal in signals {
            // Nobody listens before `keep`, and nobody after `close`.
            drop(self.telling.send(signal));
        }
    }

    /// Keeps the line from now on.
    pub(crate) fn keep(&self, address: Address, hear: Hear) {
        let Some(told) = self.told.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        let keeper = tokio::spawn(keep(address, self.own, told, hear));
        let mut place = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(keeper.abort_handle());
    }

    pub(crate) fn close(&self) {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keeper) = keeper {
            keeper.abort();
        }
    }
}

async fn keep(address: Address, own: Uuid, mut told: UnboundedReceiver<Signal>, hear: Hear) {
    let mut pause = PAUSE_MIN;
    let mut lost = false;
    loop {
        let joining = tokio::time::timeout(PROBE, join(&address, own, &hear)).await;
        match joining.unwrap_or_else(|_elapsed| Err("no answer in time".to_owned())) {
            Ok(joined) => {
                pause = PAUSE_MIN;
                hear(Heard::Missed);
                let say = if lost { vec![Signal::Missed] } else { Vec::new() };
                let (ended, unsent) = speak(&joined, own, &mut told, say).await;
                lost = unsent;
                tracing::warn!(error = ended, "line to the other servers broke");
            }
            Err(error) => {
                tracing::warn!(%error, "no line to the other servers; they are looked for again");
            }
        }
        // What could not be told is old by the time there is a line again. That jobs are there
        // the others see by themselves; for the rest they are told to look.
        while let Ok(signal) = told.try_recv() {
            lost |= matters(&signal);
        }
        if told.is_closed() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// A connection that listens.
struct Joined {
    client: Client,
    reader: tokio::task::JoinHandle<()>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn join(address: &Address, own: Uuid, hear: &Hear) -> Result<Joined, String> {
    let (client, mut connection) =
        address.config().connect(address.connector()).await.map_err(|error| words(&error))?;
    let hear = Arc::clone(hear);
    let reader = tokio::spawn(async move {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            match message {
                Ok(AsyncMessage::Notification(said)) => heard(own, said.payload(), &hear),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    });
    let joined = Joined { client, reader };
    let listening = format!("set application_name = 'outlast line'; listen {CHANNEL}");
    joined.client.batch_execute(&listening).await.map_err(|error| words(&error))?;
    Ok(joined)
}

fn heard(own: Uuid, payload: &str, hear: &Hear) {
    match serde_json::from_str::<Message>(payload) {
        Ok(message) if message.from == own => {}
        Ok(message) => hear(Heard::Signals(message.say)),
        // A newer server may say what this one does not know.
        Err(_) => hear(Heard::Missed),
    }
}

/// Whether the others must not go without a hint.
const fn matters(signal: &Signal) -> bool {
    !matches!(
        signal,
        Signal::Ready(..)
            | Signal::Lost(..)
            | Signal::Fetched(..)
            | Signal::WhoFetches
            | Signal::Arrived
    )
}

/// Says something, then sends what is told until the line breaks; returns why it broke, and
/// whether something that matters was lost with it.
async fn speak(
    joined: &Joined,
    own: Uuid,
    told: &mut UnboundedReceiver<Signal>,
    mut say: Vec<Signal>,
) -> (String, bool) {
    loop {
        if say.is_empty() {
            match tokio::time::timeout(PROBE, told.recv()).await {
                Ok(Some(first)) => say.push(first),
                Ok(None) => return ("store was closed".to_owned(), false),
                // A line that nothing comes through may be dead.
                Err(_elapsed) => {}
            }
        }
        if !say.is_empty() {
            tokio::time::sleep(GATHER).await;
            while let Ok(signal) = told.try_recv() {
                say.push(signal);
            }
        }
        let lost = say.iter().any(matters);
        let sending = send(&joined.client, own, std::mem::take(&mut say));
        match tokio::time::timeout(PROBE, sending).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return (words(&error), lost),
            Err(_elapsed) => return ("no answer in time".to_owned(), lost),
        }
    }
}

async fn send(client: &Client, own: Uuid, say: Vec<Signal>) -> Result<(), tokio_postgres::Error> {
    let mut message = Message { from: own, say: Vec::new() };
    let mut size = 0;
    for signal in Signal::together(say) {
        let more = serde_json::to_string(&signal).map_or(0, |text| text.len() + 1);
        if size + more > MESSAGE_MAX {
            notify(client, &message).await?;
            message.say.clear();
            size = 0;
        }
        size += more;
        message.say.push(signal);
    }
    // An empty one is a probe: it is sent to nobody.
    if message.say.is_empty() {
        client.batch_execute("").await
    } else {
        notify(client, &message).await
    }
}

async fn notify(client: &Client, message: &Message) -> Result<(), tokio_postgres::Error> {
    let payload = serde_json::to_string(message).unwrap_or_default();
    client.execute("select pg_notify($1, $2)", &[&CHANNEL, &payload]).await?;
    Ok(())
}
