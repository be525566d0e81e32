//! The first look of a claim by limits: see [`outlast_store::apply::front`].

use std::collections::{HashMap, HashSet};

use outlast_store::StoreError;
use outlast_store::apply::front::{Front, FrontRow, front_rows};
use outlast_store::apply::limit::{Gates, Lane};
use outlast_store::command::{Claim, ClassId};
use outlast_store::reply::Claims;

use crate::row::failed;
use crate::writer::Tx;
use crate::writer::claim::HeadRow;
use crate::writer::limit::add_left;

/// What the first look goes by.
#[derive(Default)]
struct Look {
    /// Classes that limits do not tell apart by keys.
    whole: HashMap<ClassId, Lane>,
    rows: Vec<FrontRow>,
    heads: HashMap<i64, HeadRow>,
    partial: HashSet<ClassId>,
}

impl Tx<'_> {
    /// Takes jobs that are found at the front of the classes. Returns in which classes to look
    /// further; `None` if the claim is done.
    pub(super) fn claim_of_front(
        &mut self,
        (classes, gates): (&[ClassId], &mut Gates),
        claim: &Claim,
        max: usize,
        claims: &mut Claims,
    ) -> Result<Option<Vec<ClassId>>, StoreError> {
        self.lane_cache.set_limits(self.limits);
        let keys = classes.iter().filter_map(|class| self.classes.known(*class));
        let is_fair = keys.into_iter().any(|key| self.limits.is_fair(&key.queue));
        // Now and then, lanes are looked at that others would hide forever.
        let looks_beyond = self.lane_cache.is_beyond(classes) && self.context.first_lane() % 8 == 0;
        if is_fair || looks_beyond {
            return Ok(Some(classes.to_vec()));
        }
        let wanted = max.saturating_sub(claims.jobs.len());
        let Look { whole, rows, heads, partial } = self.look_at_front(classes, wanted)?;
        let mut front = Front::new(rows, partial);
        while claims.jobs.len() < max {
            let wanted = max.saturating_sub(claims.jobs.len());
            let now = self.context.now;
            let seen = (&self.outbox.gates, now);
            let Some(mut page) = front.next(self.lane_cache, &whole, wanted, seen) else { break };
            self.read_gates(gates, &page.lanes)?;
            let turns = self.shares.turns(&page.lanes, std::mem::take(&mut page.heads), now);
            let terms = self.terms(claim.is_prefetch);
            let chosen = gates.choose(&page.lanes, turns, wanted, terms);
            self.lane_cache.note(&page.lanes, &chosen, now, false);
            let skipped =
                self.take_chosen((&page.lanes, gates), (&chosen, &heads), claim, claims)?;
            front.tried(page, &chosen);
            // There may be others behind these, which were not read.
            let behind = heads.values().filter(|head| skipped.contains(&head.seq));
            front.has_more(behind.map(|head| head.class));
        }
        if claims.jobs.len() >= max {
            front.was_enough(self.lane_cache);
            return Ok(None);
        }
        let beyond = front.partial();
        add_left(claims, front.left());
        if claim.is_prefetch {
            // It is not worth a long way.
            claims.kept.extend(beyond);
            return Ok(None);
        }
        Ok((!beyond.is_empty()).then_some(beyond))
    }

    fn look_at_front(&mut self, classes: &[ClassId], wanted: usize) -> Result<Look, StoreError> {
        let mut look = Look::default();
        for class in classes {
            let Some(key) = self.classes.known(*class) else { continue };
            if self.classes.is_paused(&key.queue) {
                continue;
            }
            if self.limits.need_lanes(key) {
                self.read_front(*class, wanted, &mut look)?;
                continue;
            }
            let lane = self.limits.whole(*class, key);
            for head in self.head_rows(*class, None, lane.heads_worth_reading(wanted))? {
                look.add(*class, None, head);
            }
            look.whole.insert(*class, lane);
        }
        for (class, number) in self.lane_cache.unknown(&look.rows) {
            self.lane(class, number)?;
        }
        Ok(look)
    }

    fn read_front(&self, class: ClassId, wanted: usize, look: &mut Look) -> Result<(), StoreError> {
        let most = front_rows(wanted);
        let mut select = self
            .db
            .prepare_cached(
                "select rank, seq, epoch, life, failures, losses, interruptions, lane
                 from ready where class = ?1 order by rank, seq limit ?2",
            )
            .map_err(failed)?;
        let rows = select
            .query_map((class.0, most), |row| Ok((HeadRow::of(class, row)?, row.get(7)?)))
            .map_err(failed)?;
        let mut count = 0;
        for row in rows {
            let (head, lane) = row.map_err(failed)?;
            look.add(class, Some(lane), head);
            count += 1;
        }
        if count == most {
            look.partial.insert(class);
        }
        for lane in self.lane_cache.recent(class, (&self.outbox.gates, self.context.now)) {
            for head in self.head_rows(class, Some(lane), wanted)? {
                let row = FrontRow { is_recent: true, ..front_row(class, Some(lane), &head) };
                look.rows.push(row);
                look.heads.insert(head.seq, head);
            }
        }
        Ok(())
    }
}

impl Look {
    fn add(&mut self, class: ClassId, lane: Option<i64>, head: HeadRow) {
        self.rows.push(front_row(class, lane, &head));
        self.heads.insert(head.seq, head);
    }
}

const fn front_row(class: ClassId, lane: Option<i64>, head: &HeadRow) -> FrontRow {
    FrontRow { class, lane, rank: head.rank, seq: head.seq, is_recent: false }
}
