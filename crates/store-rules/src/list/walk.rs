//! Walking the tables that a plan names: the same steps for every store, which only runs the
//! statements. An embedded store answers at once, and its walk never waits ([`at_once`]).

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use outlast_core::id::JobId;
use outlast_core::time::Timestamp;
use outlast_store::command::ClassId;
use outlast_store::error::StoreError;
use outlast_store::query::{JobQuery, Page};

use super::filter::{Dialect, Filter, Values, first_made_at};
use super::{
    BLOCK_BITS, BLOCK_STEPS, CLASSES_MAX, Found, IDS_MAX, OUT_OF_ORDER, Plan, SKIP, SKIPS_MAX,
    STEPS, Source, Tallied, Total, Way, counted, page,
};

/// What a walk asks of a store.
#[expect(async_fn_in_trait, reason = "each store awaits its own")]
pub trait Look {
    /// How the store's statements name their values.
    const DIALECT: Dialect;

    /// Returns the live counts that a plan needs.
    async fn tallied(&self, query: &JobQuery) -> Result<Tallied, StoreError>;

    /// Counts the jobs with ids from `low` to `high`, `most` at most.
    async fn count_ids(&self, low: JobId, high: JobId, most: u64) -> Result<u64, StoreError>;

    /// Returns the numbers that a statement of [`Dialect`] finds.
    async fn numbers(&self, sql: &str, values: &Values) -> Result<Vec<i64>, StoreError>;

    /// Returns the number in a table that is `step` rows below `high`, if there are that many.
    async fn lower(&self, table: &str, high: i64, step: u32) -> Result<Option<i64>, StoreError>;

    /// Returns the highest `count` blocks in which classes have jobs, none above `top`; highest
    /// first.
    async fn blocks(
        &self,
        classes: &[ClassId],
        top: i64,
        count: u32,
    ) -> Result<Vec<i64>, StoreError>;

    /// Returns the numbers of the `limit` newest claimable jobs of classes, all below `before`;
    /// highest first.
    async fn newest(
        &self,
        classes: &[ClassId],
        before: i64,
        limit: usize,
    ) -> Result<Vec<i64>, StoreError>;
}

/// A page of a list: numbers of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Newest first.
    pub seqs: Vec<i64>,
    /// Where the next page begins.
    pub next: Option<String>,
    /// How many match in all, where that is known.
    pub total: Option<u64>,
}

/// Finds the jobs of a page.
///
/// # Errors
/// Returns what the store says, or that the cursor is none.
pub async fn find<L: Look>(store: &L, query: &JobQuery) -> Result<Numbers, StoreError> {
    let ids = match query.ids {
        Some((low, high)) => store.count_ids(low, high, IDS_MAX + 1).await?,
        None => 0,
    };
    let plan = Plan::of(query, &store.tallied(query).await?, ids);
    let (first, end) = match plan.way {
        Way::Nothing => (i64::MIN, i64::MAX),
        Way::Blocks | Way::Sources(_) => times(store, query).await?,
    };
    let walk = |before: i64, limit| {
        let before = before.min(end);
        Walk { store, query, plan: &plan, first, before, limit }
    };
    let limit = usize::try_from(query.page.limit).unwrap_or(usize::MAX).saturating_add(1);
    let found = walk(cursor(&query.page)?, limit).find().await?;
    let (seqs, next) = page(found, query.page.limit);
    let total = match plan.total() {
        Total::Known(total) => Some(total),
        Total::ToCount(_) if query.page.cursor.is_none() && next.is_none() => {
            u64::try_from(seqs.len()).ok()
        }
        Total::ToCount(most) => counted(walk(i64::MAX, most).find().await?),
        Total::Unknown => None,
    };
    Ok(Numbers { seqs, next: next.map(|seq| seq.to_string()), total })
}

/// Returns the first number, and the number after the last, of the jobs that may have been made
/// at the times that are asked for.
async fn times<L: Look>(store: &L, query: &JobQuery) -> Result<(i64, i64), StoreError> {
    let all = (i64::MIN, i64::MAX);
    if query.created_from.is_none() && query.created_before.is_none() {
        return Ok(all);
    }
    let (first, last) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    let earlier = |from: Timestamp| Timestamp(from.0.saturating_sub_unsigned(OUT_OF_ORDER.0));
    let from = query.created_from.map_or(first, earlier);
    let before = query.created_before.map_or(last, |before| before.after(OUT_OF_ORDER));
    // One that is stored from now on is not on the list.
    Ok((
        first_at(store, from).await?.unwrap_or(all.0),
        first_at(store, before).await?.unwrap_or(all.1),
    ))
}

/// Returns the number of the first job that was made at a time or later, or the one after the
/// last job; `None` if there are no jobs.
async fn first_at<L: Look>(store: &L, at: Timestamp) -> Result<Option<i64>, StoreError> {
    let range = (i64::MIN, i64::MAX);
    let values = Values { created_from: Some(at), range, limit: 1, ..Values::default() };
    Ok(store.numbers(&first_made_at(&L::DIALECT), &values).await?.first().copied())
}

/// Returns below which number a page begins.
///
/// # Errors
/// Returns that the cursor is none.
pub fn cursor(page: &Page) -> Result<i64, StoreError> {
    page.cursor.as_ref().map_or(Ok(i64::MAX), |text| {
        text.parse()
            .map_err(|_not_a_number| StoreError::Rejected(format!("`{text}` is not a cursor")))
    })
}

/// Returns what a call gives that waits for nothing.
///
/// # Panics
/// Panics if it waits.
#[expect(clippy::panic, reason = "an embedded store answers at once")]
pub fn at_once<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("an embedded store waits for itself"),
    }
}

/// One list under way.
struct Walk<'a, L> {
    store: &'a L,
    query: &'a JobQuery,
    plan: &'a Plan,
    /// No job with a lower number can match.
    first: i64,
    before: i64,
    /// How many are wanted.
    limit: usize,
}

impl<L: Look> Walk<'_, L> {
    async fn find(&self) -> Result<Vec<Found>, StoreError> {
        let filter = Filter::of(self.query, self.plan, L::DIALECT);
        Ok(match &self.plan.way {
            Way::Nothing => Vec::new(),
            Way::Blocks => vec![self.in_blocks(&filter.in_states(&self.query.states)).await?],
            Way::Sources(sources) => {
                let mut found = Vec::with_capacity(sources.len());
                for (source, at_once) in sources {
                    found.push(match source {
                        Source::Ready => self.among_ready(&filter).await?,
                        other => self.in_source(*other, *at_once, &filter).await?,
                    });
                }
                found
            }
        })
    }

    /// Returns the numbers of the jobs of a range that match, newest first.
    async fn between(
        &self,
        filter: &Filter,
        from: &str,
        values: Values,
    ) -> Result<Vec<i64>, StoreError> {
        self.store.numbers(&filter.select(from), &values).await
    }

    /// Returns what a statement is given that looks for `limit` jobs from `low` on, below `high`.
    fn values(&self, low: i64, high: i64, limit: usize) -> Values {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values = Values::of(self.query, self.plan.classes.as_deref());
        Values { range: (low, high), limit, ..values }
    }

    /// Returns the number after the newest job below `high` that was made at the times that are
    /// asked for; the first number if there is none. Jobs of other times are passed over much
    /// faster so than one by one with all that is asked of them; no more of them than the page has
    /// `looks` left for.
    async fn skip(&self, mut high: i64, looks: &mut u32) -> Result<i64, StoreError> {
        let times = Filter::of_times(self.query, L::DIALECT);
        while !times.is_empty() && *looks > 0 && high > self.first {
            let low = high.saturating_sub(SKIP).max(self.first);
            let newest = self.between(&times, "job_row j", self.values(low, high, 1)).await?;
            if let Some(newest) = newest.first() {
                return Ok(newest + 1);
            }
            (high, *looks) = (low, *looks - 1);
        }
        Ok(high)
    }

    /// Walks the blocks in which the classes have jobs.
    async fn in_blocks(&self, filter: &Filter) -> Result<Found, StoreError> {
        let classes = self.plan.classes.as_deref().unwrap_or_default();
        let mut found = Found::default();
        let (mut high, mut looks) = (self.before, SKIPS_MAX);
        // Looking for blocks of thousands of classes takes longer than looking into them.
        let all = [BLOCK_STEPS.iter().sum()];
        let steps = if classes.len() > CLASSES_MAX { &all[..] } else { &BLOCK_STEPS[..] };
        for step in steps {
            high = self.skip(high, &mut looks).await?;
            let top = high.saturating_sub(1) >> BLOCK_BITS;
            let mut blocks = self.store.blocks(classes, top, *step).await?;
            let count = blocks.len();
            blocks.retain(|block| (block + 1) << BLOCK_BITS > self.first);
            found.seqs.extend(self.of_blocks(filter, &blocks, high, found.seqs.len()).await?);
            if found.seqs.len() >= self.limit {
                return Ok(Found { down_to: found.seqs.last().copied(), ..found });
            }
            let is_last = count < usize::try_from(*step).unwrap_or(usize::MAX);
            match blocks.last() {
                Some(lowest) if !is_last && blocks.len() == count => high = lowest << BLOCK_BITS,
                _ => return Ok(Found { down_to: None, ..found }),
            }
        }
        self.ends_at(high, &mut looks, found).await
    }

    /// Ends a walk that has looked at all above `high` and may look at no more, if there may be
    /// more.
    async fn ends_at(&self, high: i64, looks: &mut u32, found: Found) -> Result<Found, StoreError> {
        let high = self.skip(high, looks).await?;
        Ok(Found { down_to: (high > self.first).then_some(high), ..found })
    }

    /// Looks for what is left of a page, of which so many were found, in blocks below `high`.
    async fn of_blocks(
        &self,
        filter: &Filter,
        blocks: &[i64],
        high: i64,
        found: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let wanted = self.limit.saturating_sub(found);
        if let Some(sql) = filter.select_in_blocks() {
            let values = Values::of(self.query, self.plan.classes.as_deref());
            let among = blocks.iter().map(|block| block << BLOCK_BITS).collect();
            let limit = i64::try_from(wanted).unwrap_or(i64::MAX);
            let values = Values { among, range: (self.first, high), limit, ..values };
            return self.store.numbers(&sql, &values).await;
        }
        let mut seqs = Vec::new();
        for block in blocks {
            let low = block << BLOCK_BITS;
            let end = (low + (1 << BLOCK_BITS)).min(high);
            let values = self.values(low.max(self.first), end, wanted - seqs.len());
            seqs.extend(self.between(filter, "job_row j", values).await?);
            if seqs.len() >= self.limit.saturating_sub(found) {
                break;
            }
        }
        Ok(seqs)
    }

    /// Walks a table, more rows at each step.
    async fn in_source(
        &self,
        source: Source,
        at_once: bool,
        filter: &Filter,
    ) -> Result<Found, StoreError> {
        let filter = filter.clone().of_source(source, &self.query.states);
        let (from, table) = filter.tables(source);
        let mut found = Found::default();
        let (mut high, mut looks) = (self.before, SKIPS_MAX);
        let steps = if at_once { &[u32::MAX][..] } else { &STEPS[..] };
        for step in steps {
            if !at_once {
                high = self.skip(high, &mut looks).await?;
            }
            let low = if at_once { None } else { self.store.lower(&table, high, *step).await? };
            let low = low.filter(|low| *low > self.first);
            let wanted = self.limit - found.seqs.len();
            let values = self.values(low.unwrap_or(self.first), high, wanted);
            found.seqs.extend(self.between(&filter, &from, values).await?);
            let Some(low) = low else { return Ok(Found { down_to: None, ..found }) };
            high = low;
            if found.seqs.len() >= self.limit {
                return Ok(Found { down_to: Some(high), ..found });
            }
        }
        self.ends_at(high, &mut looks, found).await
    }

    /// The newest claimable jobs are found without looking at the others.
    async fn among_ready(&self, filter: &Filter) -> Result<Found, StoreError> {
        // What else is wanted may leave out some of them.
        let wanted = if filter.is_empty() { self.limit } else { self.limit.max(2_000) };
        let seqs = self.store.newest(&self.plan.ready, self.before, wanted).await?;
        let last = seqs.last().copied().filter(|last| *last > self.first);
        let down_to = if seqs.len() < wanted { None } else { last };
        if filter.is_empty() {
            return Ok(Found { seqs, down_to });
        }
        let low = seqs.last().copied().unwrap_or(self.before);
        let filter = filter.clone().among();
        let values = Values { among: seqs, ..self.values(low, self.before, self.limit + 1) };
        let mut seqs = self.between(&filter, "job_row j", values).await?;
        let down_to = if seqs.len() > self.limit { seqs.pop().map(|seq| seq + 1) } else { down_to };
        Ok(Found { seqs, down_to })
    }
}
