//! Enqueues what programs stored by SQL: when they notify, and at every check interval in case a
//! notification was lost.
//!
//! ```text
//! read a page of arrivals ─▶ plan their jobs ─▶ EnqueueArrived ─▶ next page, or wait
//! ```
//!
//! PostgreSQL commits transactions that notify one after the other. So when many arrivals come,
//! this server promises in the store to poll for a while, and programs do not notify.

use outlast_core::limits::ARRIVALS_BYTES_MAX;
use outlast_core::time::{BootTime, Span};
use outlast_store::arrival::{Arrival, ArrivalNumber, EnqueueArrived, EnqueuedArrived};

use crate::clock::{boot_time, millis};
use crate::engine::store_health::OwnRead;
use crate::engine::{Engine, Unavailable};
use crate::intake;

/// Most arrivals of one batch.
const PAGE: u32 = 500;
/// Time between two pages while programs do not notify.
const POLL: Span = Span(5);
/// How many arrivals within how long are many.
const MANY: usize = 10;
const MANY_WITHIN: Span = Span(100);
/// How long this server promises to poll. It polls for longer, since its promise counts from
/// when it is stored.
const WATCH: Span = Span::from_secs(1);
const WATCH_LONGER: Span = Span::from_secs(1);

/// Runs until dropped.
pub(super) async fn run(engine: Engine) {
    let mut pages = Pages::default();
    let mut pace = Pace::default();
    loop {
        let enqueued = enqueue_page(&engine, &mut pages, &mut pace).await;
        if let Err(error) = &enqueued {
            tracing::debug!(%error, "failed to enqueue arrivals");
        }
        if !matches!(enqueued, Ok(true)) {
            let polls = pace.polls(boot_time()) && enqueued.is_ok();
            let pause = if polls { POLL } else { engine.settings().check_interval };
            let wake = engine.shared().arrivals_wanted.notified();
            drop(tokio::time::timeout(millis(pause), wake).await);
        }
    }
}

/// Enqueues one page of arrivals; returns whether the next one should follow at once.
async fn enqueue_page(
    engine: &Engine,
    pages: &mut Pages,
    pace: &mut Pace,
) -> Result<bool, Unavailable> {
    let unavailable = |error: outlast_store::StoreError| Unavailable::new(error.to_string());
    let reading = engine.store().arrivals(pages.after, PAGE);
    let arrivals = engine.read_own(OwnRead::Arrivals, reading).await.map_err(unavailable)?;
    if arrivals.is_empty() {
        *pages = Pages::default();
        return Ok(false);
    }
    let now = engine.now().await.map_err(unavailable)?;
    let plan = |arrival| intake::arrival::plan(engine.settings(), arrival, now);
    let order = EnqueueArrived {
        jobs: arrivals.iter().map(plan).collect(),
        wait: false,
        watch: pace.promise(boot_time()),
    };
    let done = engine.submit(order).await?;
    pace.count(done.jobs.len(), boot_time());
    let numbers: Vec<ArrivalNumber> = arrivals.iter().map(|arrival| arrival.number).collect();
    Ok(pages.advance(&numbers, is_full(&arrivals), &done))
}

/// Whether a page has all that may be on one.
fn is_full(page: &[Arrival]) -> bool {
    let bytes: usize = page.iter().map(|arrival| arrival.envelope.len()).sum();
    page.len() >= PAGE as usize || bytes >= ARRIVALS_BYTES_MAX
}

/// Which page of arrivals is read next.
///
/// The first, in general. If nothing of a page could be enqueued, its arrivals are locked or
/// another server is about to enqueue them: the page after it comes next.
#[derive(Debug, Default)]
struct Pages {
    after: Option<ArrivalNumber>,
}

impl Pages {
    /// Notes the result of a page; returns whether the next one should follow at once.
    fn advance(&mut self, page: &[ArrivalNumber], is_full: bool, done: &EnqueuedArrived) -> bool {
        let more = is_full || done.tried < page.len();
        let in_vain = done.jobs.is_empty() && done.known.is_empty();
        let last = done.tried.checked_sub(1).and_then(|last| page.get(last)).copied();
        self.after = last.filter(|_| more && in_vain);
        more
    }
}

/// How often pages are read.
#[derive(Debug, Default)]
struct Pace {
    /// How many arrivals have come since when.
    recent: (usize, BootTime),
    many: bool,
    polls_until: Option<BootTime>,
}

impl Pace {
    fn polls(&self, now: BootTime) -> bool {
        self.polls_until.is_some_and(|until| now <= until)
    }

    fn count(&mut self, enqueued: usize, now: BootTime) {
        if enqueued == 0 {
            return;
        }
        if now.since(self.recent.1) > MANY_WITHIN {
            self.recent = (0, now);
        }
        self.recent.0 += enqueued;
        self.many |= self.recent.0 >= MANY;
    }

    /// Returns how long programs need not notify, if many arrivals have come.
    fn promise(&mut self, now: BootTime) -> Option<Span> {
        let watch = std::mem::take(&mut self.many).then_some(WATCH)?;
        self.polls_until = Some(now.after(watch).after(WATCH_LONGER));
        Some(watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(from: i64, count: u32) -> Vec<ArrivalNumber> {
        (from..from + i64::from(count)).map(ArrivalNumber).collect()
    }

    fn in_vain(tried: usize) -> EnqueuedArrived {
        EnqueuedArrived { tried, ..EnqueuedArrived::default() }
    }

    #[test]
    fn page_of_locked_arrivals_does_not_keep_the_next_one_from_being_read() {
        let mut pages = Pages::default();
        assert!(pages.advance(&numbers(1, PAGE), true, &in_vain(PAGE as usize)));
        assert_eq!(pages.after, Some(ArrivalNumber(i64::from(PAGE))));
        // The store gave up on the second page after eight.
        assert!(pages.advance(&numbers(501, 20), false, &in_vain(8)));
        assert_eq!(pages.after, Some(ArrivalNumber(508)));
        assert!(!pages.advance(&numbers(509, 12), false, &in_vain(12)));
        assert_eq!(pages.after, None, "from the beginning, after a pause");
    }

    #[test]
    fn arrivals_are_read_from_the_first_again_once_some_were_enqueued() {
        let mut pages = Pages { after: Some(ArrivalNumber(500)) };
        let known = vec![outlast_core::id::JobId(uuid::Uuid::nil())];
        let done = EnqueuedArrived { known, ..in_vain(PAGE as usize) };
        assert!(pages.advance(&numbers(501, PAGE), true, &done));
        assert_eq!(pages.after, None);
    }

    #[test]
    fn server_polls_while_many_arrive_and_for_longer_than_it_promises() {
        let mut pace = Pace::default();
        let now = BootTime(10_000);
        pace.count(MANY - 1, now);
        assert_eq!(pace.promise(now), None);
        pace.count(1, now);
        assert_eq!(pace.promise(now), Some(WATCH));
        assert!(pace.polls(now.after(WATCH).after(Span(1))));
        assert!(!pace.polls(now.after(WATCH).after(WATCH_LONGER).after(Span(1))));
        assert_eq!(pace.promise(now), None, "once for each burst");
    }
}
