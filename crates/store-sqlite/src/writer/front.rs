//! The first look of a claim by limits: see [`outlast_store::apply::front`].

use std::collections::HashMap;

use outlast_store::StoreError;
use outlast_store::apply::front::{Front, FrontRow, Next, Page, Plan};
use outlast_store::apply::lane_cache::FoundBy;
use outlast_store::apply::limit::{Gates, Head};
use outlast_store::apply::walk::Way;
use outlast_store::command::{Claim, ClassId};
use outlast_store::reply::Claims;
use rusqlite::Row;

use crate::row::failed;
use crate::writer::Tx;
use crate::writer::claim::HeadRow;

/// The jobs that the first look has read.
#[derive(Default)]
struct Rows {
    rows: Vec<FrontRow>,
    heads: HashMap<i64, HeadRow>,
}

impl Rows {
    fn add(&mut self, lane: Option<i64>, head: HeadRow, is_recent: bool) {
        let HeadRow { class, rank, seq, .. } = head;
        self.rows.push(FrontRow { class, lane, rank, seq, is_recent });
        self.heads.insert(seq, head);
    }
}

impl Tx<'_> {
    /// Takes jobs that are found at the front of the classes. Returns in which classes to look
    /// further, and the way through those that take part by their lanes; there is nothing left to
    /// look at if the claim is done.
    pub(super) fn claim_of_front(
        &mut self,
        (classes, gates): (&[ClassId], &mut Gates),
        claim: &Claim,
        max: usize,
        claims: &mut Claims,
    ) -> Result<(Vec<ClassId>, Option<Way>), StoreError> {
        self.cache.lane_cache.set_limits(&self.cache.limits);
        let known =
            classes.iter().filter_map(|class| Some((*class, &**self.cache.classes.known(*class)?)));
        let open = known.filter(|(_, key)| !self.cache.classes.is_paused(&key.queue));
        let wanted = max.saturating_sub(claims.jobs.len());
        let chance = self.batch.context.first_lane();
        let plan = self.cache.lane_cache.plan(open, wanted, chance, self.terms(claim.is_prefetch));
        let Rows { rows, mut heads } = self.read_front(&plan)?;
        let mut front = Front::new(plan, rows, &mut self.cache.lane_cache);
        let mut way = None;
        while !self.has_enough(claims, max) {
            let wanted = max.saturating_sub(claims.jobs.len());
            match front.next(&self.cache.lane_cache, wanted, self.terms(claim.is_prefetch)) {
                Next::Try(page) => {
                    let tried = (&mut front, page);
                    self.claim_of_page(tried, (gates, &mut heads), (claim, wanted), claims)?;
                }
                Next::Read(by_lanes) => {
                    let mut first = self.first_lanes(&by_lanes, wanted, claim.is_prefetch)?;
                    front.join(first.take_first());
                    way = Some(first);
                }
                Next::End => break,
            }
        }
        if self.has_enough(claims, max) {
            front.satisfied(&mut self.cache.lane_cache, classes, way.as_ref());
            return Ok((Vec::new(), None));
        }
        let (left, beyond) = front.end(claim.is_prefetch, way.as_mut());
        claims.leave(left);
        Ok((beyond, way))
    }

    fn claim_of_page(
        &mut self,
        (front, mut page): (&mut Front, Page),
        (gates, rows): (&mut Gates, &mut HashMap<i64, HeadRow>),
        (claim, wanted): (&Claim, usize),
        claims: &mut Claims,
    ) -> Result<(), StoreError> {
        let now = self.batch.context.now;
        self.read_gates(gates, &page.lanes)?;
        let mut heads = Vec::new();
        for (nth, lane, most) in page.unread() {
            for row in self.head_rows(lane.class, lane.number, most)? {
                heads.push(Head { lane: nth, rank: row.rank, seq: row.seq });
                rows.insert(row.seq, row);
            }
        }
        page.heads.append(&mut heads);
        let turns = page.turns(&mut self.cache.shares, now);
        let mut chosen = gates.choose(&page.lanes, turns, wanted, self.terms(claim.is_prefetch));
        let taking = (&page.lanes[..], gates);
        let missed = self.take_chosen(taking, (&mut chosen, rows), claim, claims)?;
        self.cache.lane_cache.note(&page.lanes, &chosen, now, FoundBy::First);
        front.tried(&self.cache.lane_cache, page, &chosen, &missed);
        Ok(())
    }

    /// Reads what is planned, and the keys of lanes that are not known.
    fn read_front(&mut self, plan: &Plan) -> Result<Rows, StoreError> {
        let mut found = Rows::default();
        for (class, most) in &plan.first {
            let has_lanes = plan.has_lanes(*class);
            for (head, lane) in self.first_rows(*class, *most)? {
                found.add(has_lanes.then_some(lane), head, false);
            }
        }
        for (class, lane, most) in &plan.recent {
            for head in self.head_rows(*class, Some(*lane), *most)? {
                found.add(Some(*lane), head, true);
            }
        }
        for (class, number) in self.cache.lane_cache.unknown(&found.rows) {
            self.lane(class, number)?;
        }
        Ok(found)
    }

    fn first_rows(&self, class: ClassId, most: usize) -> Result<Vec<(HeadRow, i64)>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select rank, seq, epoch, life, failures, losses, interruptions, lane
                 from ready where class = ?1 order by rank, seq limit ?2",
            )
            .map_err(failed)?;
        let read = |row: &Row<'_>| Ok((HeadRow::of(class, row)?, row.get(7)?));
        let limit = self.with_expired(most)?;
        let rows = select.query_map((class.0, limit), read).map_err(failed)?;
        self.unexpired(rows, |(head, _)| head.seq, most)
    }
}
