//! The first look of a claim by limits: see [`outlast_store::apply::front`].
//!
//! ```text
//! first jobs of the classes, and the version of the limits ─▶ (keys of lanes not seen before)
//!     ─▶ lock the gates of enough of them, read what these count, and their first jobs again
//!     ─▶ take the chosen ones
//! ```

use outlast_store::apply::front::{Front, FrontRow, Next, Page, Plan};
use outlast_store::apply::lane_cache::FoundBy;
use outlast_store::apply::limit::Terms;
use outlast_store::codec;
use outlast_store::command::ClassId;

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::row::get;
use crate::writer::Tx;
use crate::writer::lanes::{Choice, Look, TakenByLimits, VERSION_SHARED, Wish, terms};
use crate::writer::limit::LOCK;

/// The first jobs of classes whose queues are not paused, but for those that are avoided.
const FIRST: &str = "select w.class, r.lane, r.rank, r.seq
     from unnest($1::bigint[], $2::bigint[], $4::bigint[], $5::bigint[]) w(class, n, rank, seq)
     cross join lateral (
         select r.lane, r.rank, r.seq from ready r
         where r.class = (select c.id from class c where c.id = w.class
                 and not exists (select 1 from queue q where q.name = c.queue and q.paused))
             and (r.rank, r.seq) >= (w.rank, w.seq)
             and (r.expires is null or r.expires > $3) and r.seq <> all($6::bigint[])
         order by r.class, r.rank, r.seq limit w.n) r";

/// The first jobs of lanes that gave some lately.
const RECENT: &str = "select w.class, w.lane, r.rank, r.seq
     from unnest($1::bigint[], $2::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
         w(class, lane, n, rank, seq)
     cross join lateral (
         select r.rank, r.seq from ready r
         where r.class = (select c.id from class c where c.id = w.class
                 and not exists (select 1 from queue q where q.name = c.queue and q.paused))
             and r.lane = w.lane and r.lane <> 0
             and (r.rank, r.seq) >= (w.rank, w.seq) and (r.expires is null or r.expires > $3)
             and r.seq <> all($7::bigint[])
         order by r.class, r.lane, r.rank, r.seq limit w.n) r";

/// The keys of the first job of each lane.
pub(super) const KEYS: &str = "select w.class, w.lane, j.keys
     from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) w(class, lane, rank, seq)
     cross join lateral (
         select r.seq from ready r
         where r.class = w.class and r.lane = w.lane and r.lane <> 0
             and (r.rank, r.seq) >= (w.rank, w.seq)
         order by r.class, r.lane, r.rank, r.seq limit 1) r
     join job_row j on j.seq = any(array[r.seq])";

impl Tx<'_> {
    /// Takes jobs that are found at the front of the classes. Returns in which classes to look
    /// further, and the way through those that take part by their lanes; there is nothing left to
    /// look at if the claim is done.
    pub(super) async fn take_of_front(
        &mut self,
        classes: &[ClassId],
        wish: Wish<'_>,
        taken: &mut TakenByLimits,
    ) -> Result<(Vec<ClassId>, Option<Look>), Failure> {
        let Wish { max, is_prefetch, avoided } = wish;
        let plan = self.plan_front(classes, max, is_prefetch).await?;
        let Some(mut front) = self.read_front(plan, avoided).await? else {
            // Someone is changing the limits.
            taken.left.again.extend(classes);
            return Ok((Vec::new(), None));
        };
        let mut look = None;
        loop {
            let wanted = max.saturating_sub(taken.rows.len());
            let still = Wish { max: wanted, ..wish };
            let terms = terms(&self.batch.outbox.gates, taken, self.batch.context.now, is_prefetch);
            match front.next(&self.cache.lane_cache, wanted, terms) {
                Next::Try(page) => {
                    self.take_of_page(&mut front, page, still, taken).await?;
                }
                Next::Read(by_lanes) => {
                    look = self.look(&by_lanes, still, taken).await?;
                    match &mut look {
                        Some(look) => front.join(look.way.take_first()),
                        // Someone is changing the limits.
                        None => taken.left.again.extend(&by_lanes),
                    }
                }
                Next::End => break,
            }
        }
        if taken.rows.len() >= max {
            let way = look.as_ref().map(|look| &look.way);
            front.satisfied(&mut self.cache.lane_cache, classes, way);
            return Ok((Vec::new(), None));
        }
        let (left, beyond) = front.end(is_prefetch, look.as_mut().map(|look| &mut look.way));
        taken.left.append(left);
        Ok((beyond, look))
    }

    async fn take_of_page(
        &mut self,
        front: &mut Front,
        mut page: Page,
        Wish { max: wanted, is_prefetch, avoided }: Wish<'_>,
        taken: &mut TakenByLimits,
    ) -> Result<(), Failure> {
        let mut now = self.gates.at_least(self.batch.context.now);
        if !self.gates.missing(&page.lanes).is_empty() || page.unread().next().is_some() {
            // Others may have taken some before the gates were locked.
            (page.heads, now) = self.heads(&page.lanes, &page.most, avoided).await?;
        }
        let turns = page.turns(&mut self.cache.shares, now);
        let terms = terms(&self.batch.outbox.gates, taken, now, is_prefetch);
        let mut chosen = self.gates.choose(&page.lanes, turns, wanted, terms);
        let choice = Choice { lanes: &page.lanes, now, avoided };
        let missed = self.take_chosen(choice, &mut chosen, taken).await?;
        self.cache.lane_cache.note(&page.lanes, &chosen, self.batch.context.now, FoundBy::First);
        self.keep_starts(&page.lanes);
        front.tried(&self.cache.lane_cache, page, &chosen, &missed);
        Ok(())
    }

    async fn plan_front(
        &mut self,
        classes: &[ClassId],
        wanted: usize,
        is_prefetch: bool,
    ) -> Result<Plan, Failure> {
        let limits = self.known_limits().await?.limits;
        self.cache.lane_cache.set_limits(&limits);
        self.learn_classes(classes.iter().copied()).await?;
        let known =
            classes.iter().filter_map(|id| Some((*id, &**self.cache.classes.key(*id).ok()?)));
        let (changes, now) = (&self.batch.outbox.gates, self.batch.context.now);
        let terms = Terms { changes, taken: None, now, is_prefetch };
        Ok(self.cache.lane_cache.plan(known, wanted, self.batch.context.first_lane(), terms))
    }

    /// Reads what is planned; returns `None` while the limits are being changed.
    async fn read_front(&mut self, plan: Plan, avoided: &[i64]) -> Result<Option<Front>, Failure> {
        if plan.first.is_empty() {
            return Ok(Some(Front::new(plan, Vec::new(), &mut self.cache.lane_cache)));
        }
        let now = self.batch.context.now.0;
        let number = |most: usize| i64::try_from(most).unwrap_or(i64::MAX);
        let first = plan.first.iter().map(|(class, most)| (class.0, number(*most)));
        let (classes, most): (Vec<i64>, Vec<i64>) = first.unzip();
        let (ranks, seqs) = self.lowest_of(&classes);
        let mut statements = vec![
            Statement::new(VERSION_SHARED, values![LOCK]),
            Statement::new(FIRST, values![classes, most, now, ranks, seqs, avoided.to_vec()]),
        ];
        if !plan.recent.is_empty() {
            let (mut classes, mut lanes, mut most) = (vec![], vec![], vec![]);
            for (class, lane, each) in &plan.recent {
                classes.push(class.0);
                lanes.push(*lane);
                most.push(number(*each));
            }
            let (ranks, seqs) = self.lowest_of(&classes);
            let values = values![classes, lanes, now, most, ranks, seqs, avoided.to_vec()];
            statements.push(Statement::new(RECENT, values));
        }
        let read = self.query_all(statements).await?;
        let answer = |at: usize| read.get(at).map_or(&[][..], Vec::as_slice);
        let Some(version) = answer(0).first() else { return Ok(None) };
        self.confirm_limits(get(version, 0)?)?;
        let mut rows = Vec::new();
        let first = answer(1).iter().map(|row| (false, row));
        for (is_recent, row) in first.chain(answer(2).iter().map(|row| (true, row))) {
            let class = ClassId(get(row, 0)?);
            let lane = if plan.has_lanes(class) { Some(get(row, 1)?) } else { None };
            rows.push(FrontRow { class, lane, rank: get(row, 2)?, seq: get(row, 3)?, is_recent });
        }
        self.learn_lanes(&rows).await?;
        Ok(Some(Front::new(plan, rows, &mut self.cache.lane_cache)))
    }

    /// Reads the keys of lanes that were not seen before.
    async fn learn_lanes(&mut self, rows: &[FrontRow]) -> Result<(), Failure> {
        let unknown = self.cache.lane_cache.unknown(rows);
        if unknown.is_empty() {
            return Ok(());
        }
        let limits = self.known_limits().await?.limits;
        let (classes, lanes): (Vec<i64>, Vec<i64>) =
            unknown.into_iter().map(|(class, lane)| (class.0, lane)).unzip();
        let (ranks, seqs) = self.lowest_of(&classes);
        for row in self.query(KEYS, values![classes, lanes, ranks, seqs]).await? {
            let class = ClassId(get(&row, 0)?);
            let keys = codec::keys_of(get(&row, 2)?)?;
            let lane = limits.lane((class, self.cache.classes.key(class)?), get(&row, 1)?, keys);
            self.cache.lane_cache.learn(lane);
        }
        Ok(())
    }
}
