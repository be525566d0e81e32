//! Signals between servers: `LISTEN` and `NOTIFY` on a connection of their own.
//!
//! Signals are collected for a moment and sent as one message. A connection that breaks is opened
//! again. It listens first and then reports that signals may have been missed, so nothing falls
//! between.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outlast_store::signal::{Heard, Signal};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::connect::{Address, OnNotice, OpenConnection};
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
        let own = self.own.clone();
        let task = NotifyTask { address, silent, own, receiver, hear, unconfirmed: Vec::new() };
        let task = tokio::spawn(task.run());
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

/// What the task owns that sends and receives.
struct NotifyTask {
    address: Address,
    silent: FoundSilent,
    own: Own,
    receiver: UnboundedReceiver<Signal>,
    hear: Hear,
    /// Blocks that were sent and not confirmed.
    unconfirmed: Vec<Low>,
}

/// How a connection ended.
struct Broke {
    why: String,
    /// Whether a signal that matters was lost with it.
    lost: bool,
}

impl NotifyTask {
    async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        let mut lost = false;
        loop {
            let joining = join(&self.address, &self.own, &self.hear);
            let joining = tokio::time::timeout(ANSWER_LIMIT, joining).await;
            match joining.unwrap_or_else(|_elapsed| Err("no answer in time".to_owned())) {
                Ok(joined) => {
                    pause = PAUSE_MIN;
                    self.own.floors.missed();
                    (self.hear)(Heard::Missed);
                    let broke = self.speak(&joined, lost).await;
                    lost = broke.lost;
                    let error = broke.why;
                    tracing::warn!(error, "connection for signals between servers broke");
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection for signals between servers; trying again");
                }
            }
            // Unsent signals are old by the time there is a connection again. The others find jobs
            // by themselves. For everything else they must look into the store.
            while let Ok(signal) = self.receiver.try_recv() {
                lost |= matters(&signal);
            }
            if self.receiver.is_closed() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Sends which blocks the others have not heard of, whether they `lost` what matters, and then
    /// signals, until the connection breaks.
    async fn speak(&mut self, joined: &Joined, lost: bool) -> Broke {
        let mut say = if lost { vec![Signal::Missed] } else { Vec::new() };
        let mut of = self.own.floors.ready.unsaid_keys();
        loop {
            if say.is_empty() && of.is_empty() {
                tokio::select! {
                    first = self.receiver.recv() => match first {
                        Some(first) => say.push(first),
                        None => return Broke { why: "store was closed".to_owned(), lost: false },
                    },
                    // A connection that nothing comes through may be dead.
                    () = tokio::time::sleep(PROBE) => {}
                    Ok(()) = self.silent.changed() => {}
                }
            }
            if !say.is_empty() {
                tokio::time::sleep(GATHER).await;
                while let Ok(signal) = self.receiver.try_recv() {
                    say.push(signal);
                }
            }
            let lost = say.iter().any(matters);
            let of = std::mem::take(&mut of);
            let sending = self.send(&joined.link.client, of, std::mem::take(&mut say));
            let why = match tokio::time::timeout(ANSWER_LIMIT, sending).await {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => words(&error),
                Err(_elapsed) => "no answer in time".to_owned(),
            };
            for (class, rank, nth) in self.unconfirmed.drain(..) {
                let block = nth.map(|nth| Block { rank, nth });
                self.own.floors.ready.put_back_unsaid(class, block);
            }
            return Broke { why, lost };
        }
    }

    /// Sends signals, and blocks of these classes and of those that signals are about.
    async fn send(
        &mut self,
        client: &Client,
        of: Vec<i64>,
        say: Vec<Signal>,
    ) -> Result<(), tokio_postgres::Error> {
        let messages = messages(&self.own, of, say);
        self.unconfirmed = messages.iter().flat_map(|message| message.low.clone()).collect();
        if messages.is_empty() {
            // A probe: it has no receiver.
            return client.batch_execute("").await;
        }
        for message in messages {
            notify(client, &message).await?;
            self.unconfirmed.drain(..message.low.len());
        }
        Ok(())
    }
}

/// Returns the messages that say this.
fn messages(own: &Own, of: Vec<i64>, say: Vec<Signal>) -> Vec<Message> {
    let of = of.into_iter().map(|class| (None, low_of(own, class)));
    let say = Signal::together(say).into_iter().map(|signal| {
        let low = match signal {
            Signal::Ready(class, _) => low_of(own, class),
            _ => Vec::new(),
        };
        (Some(signal), low)
    });
    let new = || Message { from: own.id, say: Vec::new(), low: Vec::new() };
    let (mut messages, mut message, mut size) = (Vec::new(), new(), 0);
    for (signal, low) in of.chain(say) {
        let more =
            signal.as_ref().map_or(0, length) + if low.is_empty() { 0 } else { length(&low) };
        if size > 0 && size + more > MESSAGE_MAX {
            messages.push(std::mem::replace(&mut message, new()));
            size = 0;
        }
        size += more;
        message.say.extend(signal);
        message.low.extend(low);
    }
    if size > 0 {
        messages.push(message);
    }
    messages
}

/// A connection that listens.
struct Joined {
    link: OpenConnection,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.link.reader.abort();
    }
}

async fn join(address: &Address, own: &Own, hear: &Hear) -> Result<Joined, String> {
    let (own, hear) = (own.clone(), Arc::clone(hear));
    let on_notice: OnNotice = Arc::new(move |said: &str| heard(&own, said, &hear));
    let link = address.listener(on_notice).await.map_err(|error| error.to_string())?;
    let joined = Joined { link };
    let listening = format!("set application_name = 'outlast notify'; listen {CHANNEL}");
    joined.link.client.batch_execute(&listening).await.map_err(|error| words(&error))?;
    Ok(joined)
}

fn heard(own: &Own, payload: &str, hear: &Hear) {
    match serde_json::from_str::<Message>(payload) {
        Ok(message) if message.from == own.id => {}
        Ok(message) => {
            for (class, rank, nth) in message.low {
                match nth {
                    Some(nth) => own.floors.ready.heard(class, Block { rank, nth }),
                    None => own.floors.ready.missed(),
                }
            }
            if message.say.contains(&Signal::Missed) {
                own.floors.missed();
            }
            if !message.say.is_empty() {
                hear(Heard::Signals(message.say));
            }
        }
        // A newer server may say what this one does not know.
        Err(_) => {
            own.floors.missed();
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

/// Returns how long a value is in a message.
fn length<T: Serialize>(value: &T) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len() + 1)
}

/// Takes where jobs of a class came back below the floors of other servers.
fn low_of(own: &Own, class: i64) -> Vec<Low> {
    match own.floors.ready.take_unsaid(class) {
        Some(blocks) => {
            blocks.into_iter().map(|block| (class, block.rank, Some(block.nth))).collect()
        }
        None => vec![(class, 0, None)],
    }
}

async fn notify(client: &Client, message: &Message) -> Result<(), tokio_postgres::Error> {
    let payload = serde_json::to_string(message).unwrap_or_default();
    client.execute("select pg_notify($1, $2)", &[&CHANNEL, &payload]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Own {
        Own { id: Uuid::now_v7(), floors: AllFloors::new() }
    }

    fn put_back(own: &Own, class: i64, nth: i64) {
        own.floors.ready.put_back_unsaid(class, Some(Block { rank: -1, nth }));
    }

    #[test]
    fn blocks_are_said_with_signals_about_their_class_or_by_themselves() {
        let own = own();
        put_back(&own, 1, 7);
        put_back(&own, 2, 8);
        let said = messages(&own, Vec::new(), vec![Signal::Ready(1, 3), Signal::Freed]);
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].say, [Signal::Freed, Signal::Ready(1, 3)]);
        assert_eq!(said[0].low, [(1, -1, Some(7))]);
        let said = messages(&own, own.floors.ready.unsaid_keys(), Vec::new());
        assert_eq!((said[0].say.len(), &said[0].low), (0, &vec![(2, -1, Some(8))]));
        assert!(messages(&own, Vec::new(), Vec::new()).is_empty());
    }

    #[test]
    fn much_is_said_in_several_messages_that_are_not_too_long() {
        let own = own();
        for class in 0..100 {
            (0..20).for_each(|nth| put_back(&own, class, nth));
        }
        let say = (0..100).map(|class| Signal::Ready(class, 1)).collect();
        let said = messages(&own, Vec::new(), say);
        assert_eq!(said.iter().map(|message| message.low.len()).sum::<usize>(), 2_000);
        assert_eq!(said.iter().map(|message| message.say.len()).sum::<usize>(), 100);
        assert!(said.len() > 2 && said.iter().all(|message| length(message) < 8_000));
    }

    #[test]
    fn missed_hints_and_blocks_that_are_too_many_to_be_named_bring_a_full_look() {
        let awaited = |payload: &str| {
            let own = own();
            let before = own.floors.ready.full_look_is_awaited();
            heard(&own, payload, &(Arc::new(|_| {}) as Hear));
            (before, own.floors.ready.full_look_is_awaited())
        };
        assert_eq!(awaited(r#"{"say":["m"]}"#), (false, true));
        assert_eq!(awaited(r#"{"say":["news"]}"#), (false, true));
        assert_eq!(awaited(r#"{"say":[{"n":[1,2]}],"low":[[1,0,null]]}"#), (false, true));
        assert_eq!(awaited(r#"{"say":[{"n":[1,2]}],"low":[[1,0,5]]}"#), (false, false));
    }
}
