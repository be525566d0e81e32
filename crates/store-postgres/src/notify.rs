//! Signals between servers: `LISTEN` and `NOTIFY` on a connection of their own.
//!
//! Signals are collected for a moment and sent as one message. A connection that breaks is opened
//! again. It listens first and then reports that signals may have been missed, so nothing falls
//! between.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outlast_store::signal::{Heard, Signal};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_postgres::{AsyncMessage, Client};
use uuid::Uuid;

use crate::connect::Address;
use crate::failure::words;
use crate::floors::Block;
use crate::floors::look::AllFloors;

/// The channel.
const CHANNEL: &str = "outlast";
/// Most bytes of signals in a message; PostgreSQL takes 8,000.
const MESSAGE_MAX: usize = 7_000;
/// How long signals are collected: under load, a message holds many.
const GATHER: Duration = Duration::from_millis(2);
/// Pause before a broken connection is opened again: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often a silent connection is probed.
const PROBE: Duration = Duration::from_secs(5);
/// Longest that PostgreSQL may take to answer on it.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Tells when another connection was found to be silent: this one is probed at once then.
type FoundSilent = watch::Receiver<Option<Instant>>;

/// Receives what was heard.
pub(crate) type Hear = Arc<dyn Fn(Heard) + Send + Sync>;

/// A message on the channel. Programs that enqueue by SQL name no sender.
#[derive(Debug, Serialize, Deserialize)]
struct Message {
    #[serde(default)]
    from: Uuid,
    say: Vec<Signal>,
    /// Where jobs of the classes in `say` came back under their old numbers; no block if it may be
    /// anywhere. Older servers pass over it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    low: Vec<Low>,
}

/// Class, rank and block.
type Low = (i64, i64, Option<i64>);

/// Which server this is, and what its floors are.
#[derive(Clone, Debug)]
struct Own {
    id: Uuid,
    floors: AllFloors,
}

/// Sends and receives the signals of one server.
#[derive(Debug)]
pub(crate) struct Notifier {
    own: Own,
    sender: UnboundedSender<Signal>,
    receiver: Mutex<Option<UnboundedReceiver<Signal>>>,
    task: Mutex<Option<tokio::task::AbortHandle>>,
}

impl Notifier {
    pub(crate) fn new(floors: AllFloors) -> Self {
        let (sender, receiver) = unbounded_channel();
        Self {
            own: Own { id: Uuid::now_v7(), floors },
            sender,
            receiver: Mutex::new(Some(receiver)),
            task: Mutex::new(None),
        }
    }

    /// Sends signals to the other servers, if this notifier runs.
    pub(crate) fn send(&self, signals: Vec<Signal>) {
        for signal in signals {
            // There is no receiver before `run` and after `close`.
            drop(self.sender.send(signal));
        }
    }

    /// Sends and receives from now on.
    pub(crate) fn run(&self, address: Address, silent: FoundSilent, hear: Hear) {
        let Some(receiver) = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
        else {
            return;
        };
        let task = tokio::spawn(run((address, silent), self.own.clone(), receiver, hear));
        let mut slot = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(task.abort_handle());
    }

    pub(crate) fn close(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
        }
    }
}

async fn run(
    (address, mut silent): (Address, FoundSilent),
    own: Own,
    mut receiver: UnboundedReceiver<Signal>,
    hear: Hear,
) {
    let mut pause = PAUSE_MIN;
    let mut lost = false;
    loop {
        let joining = tokio::time::timeout(ANSWER_LIMIT, join(&address, &own, &hear)).await;
        match joining.unwrap_or_else(|_elapsed| Err("no answer in time".to_owned())) {
            Ok(joined) => {
                pause = PAUSE_MIN;
                own.floors.forget();
                hear(Heard::Missed);
                let say = if lost { vec![Signal::Missed] } else { Vec::new() };
                let (ended, unsent) = speak(&joined, (&own, &mut receiver), &mut silent, say).await;
                lost = unsent;
                tracing::warn!(error = ended, "connection for signals between servers broke");
            }
            Err(error) => {
                tracing::warn!(%error, "no connection for signals between servers; trying again");
            }
        }
        // Unsent signals are old by the time there is a connection again. The others find jobs by
        // themselves. For everything else they must look into the store.
        while let Ok(signal) = receiver.try_recv() {
            lost |= matters(&signal);
        }
        if receiver.is_closed() {
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

async fn join(address: &Address, own: &Own, hear: &Hear) -> Result<Joined, String> {
    let (client, mut connection) =
        address.config().connect(address.connector()).await.map_err(|error| words(&error))?;
    let (own, hear) = (own.clone(), Arc::clone(hear));
    let reader = tokio::spawn(async move {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            match message {
                Ok(AsyncMessage::Notification(said)) => heard(&own, said.payload(), &hear),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    });
    let joined = Joined { client, reader };
    let listening = format!("set application_name = 'outlast notify'; listen {CHANNEL}");
    joined.client.batch_execute(&listening).await.map_err(|error| words(&error))?;
    Ok(joined)
}

fn heard(own: &Own, payload: &str, hear: &Hear) {
    match serde_json::from_str::<Message>(payload) {
        Ok(message) if message.from == own.id => {}
        Ok(message) => {
            for (class, rank, nth) in message.low {
                match nth {
                    Some(nth) => own.floors.ready.heard(class, Block { rank, nth }),
                    None => own.floors.ready.forget_key(class),
                }
            }
            hear(Heard::Signals(message.say));
        }
        // A newer server may say what this one does not know.
        Err(_) => {
            own.floors.forget();
            hear(Heard::Missed);
        }
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
            | Signal::Polled { .. }
            | Signal::Arrived
    )
}

/// Sends `say`, then signals until the connection breaks; returns why it broke, and
/// whether something that matters was lost with it.
async fn speak(
    joined: &Joined,
    (own, receiver): (&Own, &mut UnboundedReceiver<Signal>),
    silent: &mut FoundSilent,
    mut say: Vec<Signal>,
) -> (String, bool) {
    loop {
        if say.is_empty() {
            tokio::select! {
                first = receiver.recv() => match first {
                    Some(first) => say.push(first),
                    None => return ("store was closed".to_owned(), false),
                },
                // A connection that nothing comes through may be dead.
                () = tokio::time::sleep(PROBE) => {}
                Ok(()) = silent.changed() => {}
            }
        }
        if !say.is_empty() {
            tokio::time::sleep(GATHER).await;
            while let Ok(signal) = receiver.try_recv() {
                say.push(signal);
            }
        }
        let lost = say.iter().any(matters);
        let sending = send(&joined.client, own, std::mem::take(&mut say));
        match tokio::time::timeout(ANSWER_LIMIT, sending).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return (words(&error), lost),
            Err(_elapsed) => return ("no answer in time".to_owned(), lost),
        }
    }
}

async fn send(client: &Client, own: &Own, say: Vec<Signal>) -> Result<(), tokio_postgres::Error> {
    let mut message = Message { from: own.id, say: Vec::new(), low: Vec::new() };
    let mut size = 0;
    for signal in Signal::together(say) {
        let low = low_of(own, &signal);
        let more = length(&signal) + if low.is_empty() { 0 } else { length(&low) };
        if size + more > MESSAGE_MAX {
            notify(client, &message).await?;
            message.say.clear();
            message.low.clear();
            size = 0;
        }
        size += more;
        message.say.push(signal);
        message.low.extend(low);
    }
    // An empty one is a probe: it has no receiver.
    if message.say.is_empty() {
        client.batch_execute("").await
    } else {
        notify(client, &message).await
    }
}

/// Returns how long a value is in a message.
fn length<T: Serialize>(value: &T) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len() + 1)
}

/// Returns where jobs that a signal is about came back below the floors of other servers.
fn low_of(own: &Own, signal: &Signal) -> Vec<Low> {
    let Signal::Ready(class, _) = signal else { return Vec::new() };
    match own.floors.ready.take_unsaid(*class) {
        Some(blocks) => {
            blocks.into_iter().map(|block| (*class, block.rank, Some(block.nth))).collect()
        }
        None => vec![(*class, 0, None)],
    }
}

async fn notify(client: &Client, message: &Message) -> Result<(), tokio_postgres::Error> {
    let payload = serde_json::to_string(message).unwrap_or_default();
    client.execute("select pg_notify($1, $2)", &[&CHANNEL, &payload]).await?;
    Ok(())
}
