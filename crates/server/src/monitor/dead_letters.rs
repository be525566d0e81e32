//! Dead letters that no server has handled yet: one server, of those that have rules, stores a job for each
//! rule that matches, and only then notes that the dead letter was handled. A crash in
//! between makes the same jobs again, under the same ids.
//!
//! Where no server has rules, the one that deletes old history notes that old dead letters need no
//! handler: rules that are made later are for what dies later.

use std::sync::Arc;

use outlast_core::time::Span;
use outlast_store::StoreError;
use outlast_store::command::{Command, HandleLetters, LeadershipFence, LetterKey};
use outlast_store::query::UnhandledLetter;
use outlast_store::reply::{EnqueueRefusal, Reply};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::millis;
use crate::engine::trouble_log::log_trouble;
use crate::engine::{Engine, Unavailable};
use crate::handlers::{JOB_TYPE, QUEUE, Rule, jobs, message};
use crate::monitor::leadership::{Candidate, NotLeading};

/// How many are handled at once.
const AT_ONCE: u32 = 100;
/// Pause between two looks where there are rules, and where there are none.
const LOOK: Span = Span::from_secs(1);
const LOOK_WITHOUT_RULES: Span = Span::from_secs(60);

/// How long the server that handles them leads.
const LEASE: Span = Span::from_secs(10);

/// How old a dead letter is before a server without rules notes that it needs no handler: while the
/// configuration changes, server after server, another one may have rules.
const OLD: Span = Span::from_secs(3600);

/// Handles dead letters while this server leads.
pub(super) struct DeadLetters {
    engine: Engine,
    leadership: watch::Receiver<Option<LeadershipFence>>,
}

/// Why a dead letter was not handled now.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error("its job was refused: {0}")]
    Refused(EnqueueRefusal),
}

impl DeadLetters {
    pub(super) const fn new(
        engine: Engine,
        leadership: watch::Receiver<Option<LeadershipFence>>,
    ) -> Self {
        Self { engine, leadership }
    }

    pub(super) async fn run(&mut self) {
        let mut candidate = self.candidate();
        loop {
            let pause = if self.has_no_rules() {
                self.pass_over_old().await
            } else {
                self.handle(&mut candidate).await
            };
            self.wait(pause).await;
        }
    }

    fn has_no_rules(&self) -> bool {
        self.engine.settings().handlers.rules().is_empty()
    }

    fn candidate(&self) -> Candidate {
        Candidate::new(self.engine.clone(), "dead_letters", LEASE)
    }

    /// Waits, and no longer than until there is a rule where there was none, or this server begins to
    /// delete old history.
    async fn wait(&mut self, pause: Span) {
        let had_none = self.has_no_rules();
        let led = self.leadership.borrow_and_update().is_some();
        let end = Instant::now() + millis(pause);
        while Instant::now() < end {
            tokio::time::sleep_until(end.min(Instant::now() + millis(LOOK))).await;
            let leads = self.leadership.borrow().is_some();
            if had_none && (!self.has_no_rules() || leads && !led) {
                return;
            }
        }
    }

    /// Handles some while this server leads; returns how long to wait then.
    async fn handle(&self, candidate: &mut Candidate) -> Span {
        match candidate.acquire().await {
            Ok(_fence) => match self.handle_some().await {
                Ok(true) => Span::ZERO,
                Ok(false) => LOOK,
                Err(error) => {
                    self.say(&error);
                    LOOK
                }
            },
            Err(NotLeading::Elsewhere(sure)) => sure.max(LOOK),
            Err(NotLeading::Failed) => LOOK,
        }
    }

    /// Passes over old ones, at the server that deletes old history; returns how long to wait then.
    async fn pass_over_old(&self) -> Span {
        if self.leadership.borrow().is_none() {
            return LOOK_WITHOUT_RULES;
        }
        match self.pass_over_some().await {
            Ok(true) => return Span::ZERO,
            Ok(false) => {}
            Err(error) => self.say(&error),
        }
        LOOK_WITHOUT_RULES
    }

    fn say(&self, error: &Trouble) {
        let shared = self.engine.shared();
        log_trouble!(warn, shared, error, "failed to handle dead letters; retrying");
    }

    /// Handles the oldest; returns whether there may be more.
    async fn handle_some(&self) -> Result<bool, Trouble> {
        let letters = self.engine.store().unhandled_letters(AT_ONCE).await?;
        let rules = self.rules().await?;
        let mut handled = Vec::with_capacity(letters.len());
        for letter in letters {
            match self.enqueue(&letter, &rules).await {
                Ok(()) => handled.push(letter),
                // Others would be refused, too.
                Err(error @ (Trouble::Unavailable(_) | Trouble::Refused(_))) => {
                    self.say(&error);
                    break;
                }
                Err(error) => self.say(&error),
            }
        }
        self.note(handled).await
    }

    /// Notes that old ones need no handler, and has handlers run that were planned by rules of before;
    /// returns whether there may be more.
    async fn pass_over_some(&self) -> Result<bool, Trouble> {
        let now = self.engine.now().await?;
        let mut letters = self.engine.store().unhandled_letters(AT_ONCE).await?;
        letters.retain(|letter| now.since(letter.at) > OLD);
        let handlers = &self.engine.settings().handlers;
        let has_leftovers = !handlers.runs_handlers() && self.has_waiting_handlers().await?;
        if letters.is_empty() && !has_leftovers || !self.rules().await?.is_empty() {
            return Ok(false);
        }
        // A server that has rules leads here, and may be about to handle them.
        let mut candidate = self.candidate();
        if candidate.acquire().await.is_err() {
            return Ok(false);
        }
        if has_leftovers {
            tracing::info!("handlers of dead letters wait, and no server has rules: they run here");
            handlers.run_leftovers();
        }
        if !letters.is_empty() {
            tracing::info!(
                count = letters.len(),
                "dead letters stay without a handler: there are no rules"
            );
        }
        let noted = self.note(letters).await;
        candidate.resign().await;
        noted
    }

    /// Whether a job that handles a dead letter can be claimed.
    async fn has_waiting_handlers(&self) -> Result<bool, Trouble> {
        let classes = self.engine.store().claimable(1).await?;
        Ok(classes.iter().any(|class| class.key.queue == QUEUE))
    }

    async fn note(&self, letters: Vec<UnhandledLetter>) -> Result<bool, Trouble> {
        if letters.is_empty() {
            return Ok(false);
        }
        let more = letters.len() >= usize::try_from(AT_ONCE).unwrap_or(usize::MAX);
        let letters: Vec<LetterKey> = letters.into_iter().map(|letter| letter.key).collect();
        self.engine.submit(HandleLetters { letters }).await?;
        Ok(more)
    }

    /// Reads the rules that hold now: what is noted as handled stays so.
    async fn rules(&self) -> Result<Arc<[Rule]>, Trouble> {
        let queues = self.engine.store().queue_settings().await?;
        Ok(self.engine.settings().handlers.set_queues(&queues))
    }

    async fn enqueue(&self, letter: &UnhandledLetter, rules: &[Rule]) -> Result<(), Trouble> {
        let handlers = self.engine.settings().handlers.handlers();
        let is_handler = letter.job_type == JOB_TYPE;
        if is_handler || !rules.iter().any(|rule| rule.matches(letter)) {
            return Ok(());
        }
        let Some(record) = self.engine.store().job(letter.key.job).await? else { return Ok(()) };
        let stored = Arc::clone(&record.job);
        let message = message::write(&self.engine, letter, record).await?;
        let Some(message) = message else { return Ok(()) };
        for job in jobs::of_letter(&handlers, rules, letter, &stored.payload.meta, &message) {
            match self.engine.submit(Command::Enqueue(Box::new(job))).await? {
                // It was stored before a crash.
                Reply::Enqueued(Ok(_) | Err(EnqueueRefusal::DuplicateId(_))) => {}
                Reply::Enqueued(Err(refusal)) => return Err(Trouble::Refused(refusal)),
                _ => {}
            }
        }
        Ok(())
    }
}
