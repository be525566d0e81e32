//! The interpreters that were started ahead, and the start of the next ones.
//!
//! ```text
//! started ──imports done──▶ waiting ──an attempt──▶ taken: it is the attempt's
//!                             └─idle | ended by itself | pack changed──▶ gone
//! ```

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use outlast_core::time::BootTime;
use outlast_packs::environment::{InUse, PackEnvironment};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use super::ahead::Ahead;
use super::pool::Pool;
use super::start::{Launch, Trouble, broken};
use super::{
    How, LOOK_EVERY, PROCESSES_MAX, Table, Topic, WarmKey, WarmProcess, WarmProcesses, WarmRequest,
    hold,
};
use crate::clock::boot_now;
use crate::process::protocol::{Blame, NotServed};

/// The interpreters for attempts of one key.
#[derive(Debug)]
pub(super) struct Supply {
    pub(super) pool: Pool,
    waiting: Vec<Waiting>,
    /// What the last attempt was to run in, and must not see.
    environment: Option<Arc<PackEnvironment>>,
    hidden: Vec<PathBuf>,
    /// Closed when this is dropped: what is started for it is not wanted any more.
    life: watch::Sender<()>,
}

/// One that waits.
#[derive(Debug)]
struct Waiting {
    /// Tells it from others of its supply.
    number: u64,
    ahead: Ahead,
}

impl Supply {
    fn new() -> Self {
        Self {
            pool: Pool::default(),
            waiting: Vec::new(),
            environment: None,
            hidden: Vec::new(),
            life: watch::Sender::new(()),
        }
    }

    /// How many are there or on their way.
    pub(super) fn count(&self) -> usize {
        self.pool.count(self.waiting.len())
    }

    /// Whether it is this one for which something was started, or one that has taken its place.
    fn is(&self, life: &watch::Receiver<()>) -> bool {
        self.life.subscribe().same_channel(life)
    }

    /// Takes the one that has waited longest.
    fn take(&mut self) -> Option<Ahead> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0).ahead)
    }
}

impl WarmProcesses {
    /// Finds an interpreter for an attempt that starts now, and has another one started if there is none.
    pub(super) fn find_ahead(
        &self,
        request: WarmRequest<'_>,
        now: BootTime,
    ) -> Option<WarmProcess> {
        let key = Arc::new(request.key);
        let mut table = self.lock();
        table.supplies.retain(|other, _| !key.replaces(other));
        let supply = table.supplies.entry(Arc::clone(&key)).or_insert_with(Supply::new);
        if supply.hidden != request.hidden {
            // Those that wait see what this attempt must not.
            supply.waiting.clear();
        }
        (supply.hidden, supply.environment) = (request.hidden, request.environment);
        supply.pool.ask(now);
        let found = supply.take();
        drop(table);
        let Some(ahead) = found else {
            self.start_another(&key, now);
            return None;
        };
        let how = How::Waits(Arc::new(Mutex::new(Some(ahead))));
        Some(WarmProcess { key, processes: self.clone(), how })
    }

    /// Notes that an attempt was served. Now there is time to start the next one.
    pub(super) fn ahead_has_served(&self, key: &Arc<WarmKey>) {
        if let Some(supply) = self.lock().supplies.get_mut(key) {
            supply.pool.has_served();
        }
        self.start_another(key, boot_now());
    }

    /// Notes that an attempt was not.
    pub(super) fn ahead_has_not_served(
        &self,
        key: &Arc<WarmKey>,
        NotServed { why, blame }: &NotServed,
    ) {
        tracing::debug!(pack = key.pack, why, "an attempt was executed, not run ahead");
        let now = boot_now();
        let is_useless = self.lock().supplies.get_mut(key).is_some_and(|supply| match blame {
            Blame::Attempt => false,
            Blame::Process => supply.pool.has_missed(now),
            Blame::Hangs => {
                supply.pool.has_failed(now);
                false
            }
        });
        if is_useless {
            let topic = Topic::Use(key.preload.clone());
            self.say_once(&key.pack, topic, &format!("none that waited ran one: {why}"));
        }
        self.start_another(key, now);
    }

    /// Starts one if another one is wanted.
    fn start_another(&self, key: &Arc<WarmKey>, now: BootTime) {
        let mut table = self.lock();
        let is_full = table.count() >= PROCESSES_MAX;
        let Some(supply) = table.supplies.get_mut(key) else { return };
        if !supply.pool.wants_another(supply.waiting.len(), now) {
            return;
        }
        if is_full {
            let is_first = supply.waiting.is_empty();
            drop(table);
            if is_first {
                self.say_too_many(&key.pack);
            }
            return;
        }
        let Ok(held) = hold(supply.environment.as_deref(), key) else {
            // It is being replaced. The next attempt asks for another one.
            return supply.pool.has_failed(now);
        };
        supply.pool.starts();
        let launch = Launch {
            key: Arc::clone(key),
            attempts: self.attempts.clone(),
            hidden: supply.hidden.clone(),
        };
        tokio::spawn(self.clone().run_ahead(launch, supply.life.subscribe(), held));
    }

    /// Starts one and looks after it while it waits.
    async fn run_ahead(self, launch: Launch, mut life: watch::Receiver<()>, held: Option<InUse>) {
        let (key, hidden) = (Arc::clone(&launch.key), launch.hidden.clone());
        let unwanted = async { while life.changed().await.is_ok() {} };
        let started = Ahead::start(&self.program, launch, held, unwanted).await;
        let started = started.and_then(|ahead| {
            let end = ahead.watch().map_err(broken)?;
            Ok((ahead, end))
        });
        match started {
            Ok((ahead, end)) => {
                let (pack, memory) = (key.pack.as_str(), ahead.memory().unwrap_or_default());
                tracing::info!(pack, memory, "an interpreter waits for an attempt");
                let number = self.put(&key, &life, ahead, &hidden);
                self.start_another(&key, boot_now());
                if let Some(number) = number {
                    self.stay_with(&key, number, &end).await;
                }
            }
            Err(trouble) => self.note_start_failure(&key, &life, trouble),
        }
    }

    /// Lets it wait, and returns its number, if it is still wanted.
    fn put(
        &self,
        key: &Arc<WarmKey>,
        life: &watch::Receiver<()>,
        ahead: Ahead,
        hidden: &[PathBuf],
    ) -> Option<u64> {
        let mut table = self.lock();
        table.last_number = table.last_number.wrapping_add(1);
        let number = table.last_number;
        let supply = table.supplies.get_mut(key)?;
        if !supply.is(life) {
            return None;
        }
        supply.pool.start_is_over();
        if supply.hidden != hidden {
            return None;
        }
        supply.waiting.push(Waiting { number, ahead });
        Some(number)
    }

    fn note_start_failure(&self, key: &Arc<WarmKey>, life: &watch::Receiver<()>, trouble: Trouble) {
        let mut table = self.lock();
        let supply = table.supplies.get_mut(key);
        let Some(supply) = supply.filter(|supply| supply.is(life)) else { return };
        supply.pool.start_is_over();
        let why = match trouble {
            Trouble::Unfit(why) => {
                supply.pool.is_unfit(boot_now());
                why
            }
            Trouble::Broken(why) => {
                supply.pool.has_failed(boot_now());
                why
            }
        };
        drop(table);
        self.say_once(&key.pack, Topic::Start(key.preload.clone()), &why);
    }

    /// Stays while it waits: it may end by itself, or for want of attempts.
    async fn stay_with(&self, key: &Arc<WarmKey>, number: u64, end: &AsyncFd<OwnedFd>) {
        loop {
            let has_ended = tokio::select! {
                _ = end.readable() => true,
                () = tokio::time::sleep(LOOK_EVERY.min(key.idle)) => false,
            };
            let mut table = self.lock();
            let Some(supply) = table.supplies.get_mut(key) else { return };
            let at = supply.waiting.iter().position(|waiting| waiting.number == number);
            // An attempt has taken it otherwise.
            let Some(at) = at else { return };
            if has_ended {
                tracing::warn!(pack = key.pack, "an interpreter that waited has ended by itself");
                supply.pool.has_failed(boot_now());
            } else if supply.pool.is_idle(key.idle, boot_now()) {
                tracing::info!(pack = key.pack, "no attempt has come for long: ending what waits");
            } else {
                continue;
            }
            drop(supply.waiting.remove(at));
            return;
        }
    }
}

impl Table {
    /// How many interpreters there are in all, or will be.
    pub(super) fn count(&self) -> usize {
        let forking = self.entries.values().filter(|entry| entry.slot.is_taken()).count();
        let waiting = self.supplies.values().map(Supply::count);
        forking.saturating_add(waiting.sum())
    }
}
