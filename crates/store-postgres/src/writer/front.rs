//! The first look of a claim by limits: see [`outlast_store::apply::front`].
//!
//! ```text
//! first jobs of the classes, and the version of the limits ─▶ (keys of lanes not seen before)
//!     ─▶ lock the gates of enough of them, read what these count ─▶ take the chosen ones
//! ```

use std::collections::{HashMap, HashSet};

use outlast_store::apply::front::{Front, FrontRow, Page, front_rows};
use outlast_store::apply::limit::{Lane, Terms};
use outlast_store::codec;
use outlast_store::command::ClassId;

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::row::get;
use crate::writer::Tx;
use crate::writer::lanes::{TakenByLimits, VERSION_SHARED};
use crate::writer::limit::LOCK;

/// The first jobs of classes whose queues are not paused.
const FRONT: &str = "select w.class, r.lane, r.rank, r.seq
     from unnest($1::bigint[], $2::bigint[]) w(class, n)
     cross join lateral (
         select r.lane, r.rank, r.seq from ready r
         where r.class = (select c.id from class c where c.id = w.class
                 and not exists (select 1 from queue q where q.name = c.queue and q.paused))
             and (r.expires is null or r.expires > $3)
         order by r.class, r.rank, r.seq limit w.n) r";

/// The first jobs of lanes that gave some lately.
const RECENT: &str = "select w.class, w.lane, r.rank, r.seq
     from unnest($1::bigint[], $2::bigint[]) w(class, lane)
     cross join lateral (
         select r.rank, r.seq from ready r
         where r.class = (select c.id from class c where c.id = w.class
                 and not exists (select 1 from queue q where q.name = c.queue and q.paused))
             and r.lane = w.lane and r.lane <> 0
             and (r.expires is null or r.expires > $3)
         order by r.class, r.lane, r.rank, r.seq limit $4) r";

/// The keys of the first job of each lane.
const KEYS: &str = "select w.class, w.lane, j.keys
     from unnest($1::bigint[], $2::bigint[]) w(class, lane)
     cross join lateral (
         select r.seq from ready r
         where r.class = w.class and r.lane = w.lane and r.lane <> 0
         order by r.class, r.lane, r.rank, r.seq limit 1) r
     join job_row j on j.seq = r.seq";

/// The classes of a claim.
struct Look {
    /// Those that limits do not tell apart by keys.
    whole: HashMap<ClassId, Lane>,
    /// How many jobs of each class are read.
    most: HashMap<ClassId, i64>,
    /// The lanes that are read beside them.
    recent: Vec<(ClassId, i64)>,
}

impl Tx<'_> {
    /// Takes jobs that are found at the front of the classes. Returns in which classes to look
    /// further; `None` if the claim is done.
    pub(super) async fn take_of_front(
        &mut self,
        (classes, max): (&[ClassId], usize),
        is_prefetch: bool,
        taken: &mut TakenByLimits,
    ) -> Result<Option<Vec<ClassId>>, Failure> {
        let Some(look) = self.look_at_front(classes, max).await? else {
            return Ok(Some(classes.to_vec()));
        };
        let Some(mut front) = self.read_front(&look, max).await? else {
            // Someone is changing the limits.
            taken.passed_over.extend(classes);
            return Ok(None);
        };
        while taken.rows.len() < max {
            let wanted = max.saturating_sub(taken.rows.len());
            let seen = (&self.outbox.gates, self.context.now);
            let Some(page) = front.next(self.lane_cache, &look.whole, wanted, seen) else { break };
            self.take_of_page(&mut front, page, (wanted, is_prefetch), taken).await?;
        }
        if taken.rows.len() >= max {
            front.was_enough(self.lane_cache);
            return Ok(None);
        }
        let beyond = front.partial();
        taken.add(front.left());
        if is_prefetch {
            // It is not worth a long way.
            taken.kept.extend(beyond);
            return Ok(None);
        }
        Ok((!beyond.is_empty()).then_some(beyond))
    }

    async fn take_of_page(
        &mut self,
        front: &mut Front,
        mut page: Page,
        (wanted, is_prefetch): (usize, bool),
        taken: &mut TakenByLimits,
    ) -> Result<(), Failure> {
        let now = match self.gates.missing(&page.lanes).is_empty() {
            true => self.gates.at_least(self.context.now),
            false => {
                let read = self.query_all(self.reading_of_gates(&page.lanes)).await?;
                self.read_gates(&read)?
            }
        };
        let turns = self.shares.turns(&page.lanes, std::mem::take(&mut page.heads), now);
        let terms =
            Terms { changes: &self.outbox.gates, taken: Some(&taken.charged), now, is_prefetch };
        let chosen = self.gates.choose(&page.lanes, turns, wanted, terms);
        self.lane_cache.note(&page.lanes, &chosen, self.context.now, false);
        self.take_chosen((&page.lanes, now), &chosen, taken).await?;
        self.keep_starts(&page.lanes);
        front.tried(page, &chosen);
        Ok(())
    }

    /// Returns `None` if the classes must be looked at as a whole.
    async fn look_at_front(
        &mut self,
        classes: &[ClassId],
        wanted: usize,
    ) -> Result<Option<Look>, Failure> {
        let limits = self.known_limits().await?.limits;
        self.lane_cache.set_limits(&limits);
        self.learn_classes(classes.iter().copied()).await?;
        // Now and then, lanes are looked at that others would hide forever.
        if self.lane_cache.is_beyond(classes) && self.context.first_lane() % 8 == 0 {
            return Ok(None);
        }
        let mut look = Look { whole: HashMap::new(), most: HashMap::new(), recent: Vec::new() };
        for class in classes {
            let Ok(key) = self.classes.key(*class) else { continue };
            if limits.is_fair(&key.queue) {
                return Ok(None);
            }
            if limits.need_lanes(key) {
                look.most.insert(*class, i64::from(front_rows(wanted)));
                let seen = (&self.outbox.gates, self.context.now);
                let recent = self.lane_cache.recent(*class, seen);
                look.recent.extend(recent.into_iter().map(|lane| (*class, lane)));
            } else {
                let lane = limits.whole(*class, key);
                let most = lane.heads_worth_reading(wanted);
                look.most.insert(*class, i64::try_from(most).unwrap_or(i64::MAX));
                look.whole.insert(*class, lane);
            }
        }
        Ok(Some(look))
    }

    /// Reads the front; `None` while the limits are being changed.
    async fn read_front(&mut self, look: &Look, wanted: usize) -> Result<Option<Front>, Failure> {
        let now = self.context.now.0;
        let (classes, most): (Vec<i64>, Vec<i64>) =
            look.most.iter().map(|(class, most)| (class.0, *most)).unzip();
        let mut statements = vec![
            Statement::new(VERSION_SHARED, values![LOCK]),
            Statement::new(FRONT, values![classes, most, now]),
        ];
        if !look.recent.is_empty() {
            let (classes, lanes): (Vec<i64>, Vec<i64>) =
                look.recent.iter().map(|(class, lane)| (class.0, *lane)).unzip();
            let most = i64::try_from(wanted).unwrap_or(i64::MAX);
            statements.push(Statement::new(RECENT, values![classes, lanes, now, most]));
        }
        let read = self.query_all(statements).await?;
        let answer = |at: usize| read.get(at).map_or(&[][..], Vec::as_slice);
        let Some(version) = answer(0).first() else { return Ok(None) };
        self.confirm_limits(get(version, 0)?)?;
        let mut rows = Vec::new();
        let mut counts: HashMap<ClassId, i64> = HashMap::new();
        for (is_recent, row) in
            answer(1).iter().map(|row| (false, row)).chain(answer(2).iter().map(|row| (true, row)))
        {
            let class = ClassId(get(row, 0)?);
            let lane = (!look.whole.contains_key(&class)).then_some(get(row, 1)?);
            rows.push(FrontRow { class, lane, rank: get(row, 2)?, seq: get(row, 3)?, is_recent });
            if !is_recent {
                *counts.entry(class).or_default() += 1;
            }
        }
        let is_partial = |(class, count): (ClassId, i64)| {
            let most = look.most.get(&class).filter(|_| !look.whole.contains_key(&class));
            most.is_some_and(|most| count >= *most).then_some(class)
        };
        let partial: HashSet<ClassId> = counts.into_iter().filter_map(is_partial).collect();
        self.learn_lanes(&rows).await?;
        Ok(Some(Front::new(rows, partial)))
    }

    /// Reads the keys of lanes that were not seen before.
    async fn learn_lanes(&mut self, rows: &[FrontRow]) -> Result<(), Failure> {
        let unknown = self.lane_cache.unknown(rows);
        if unknown.is_empty() {
            return Ok(());
        }
        let limits = self.known_limits().await?.limits;
        let (classes, lanes): (Vec<i64>, Vec<i64>) =
            unknown.into_iter().map(|(class, lane)| (class.0, lane)).unzip();
        for row in self.query(KEYS, values![classes, lanes]).await? {
            let class = ClassId(get(&row, 0)?);
            let keys = codec::keys_of(get(&row, 2)?)?;
            let lane = limits.lane((class, self.classes.key(class)?), get(&row, 1)?, keys);
            self.lane_cache.learn(lane);
        }
        Ok(())
    }
}
