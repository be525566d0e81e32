//! Forgetting what need not be kept any longer.

use outlast_core::id::WorkerId;
use outlast_core::leadership::LeadershipRefusal;
use outlast_store::command::Prune;
use outlast_store::partitions::day_of;
use outlast_store::reply::Pruned;

use crate::model::tables::Seq;
use crate::model::tx::Tx;

impl Tx<'_> {
    pub(super) fn prune(&mut self, prune: &Prune) -> Result<Pruned, LeadershipRefusal> {
        self.check_leadership(&prune.leadership)?;
        let limit = usize::try_from(prune.limit).unwrap_or(usize::MAX);
        // Before jobs go: a class goes with the prune after that of its last job.
        let classes = self.tables.retire_classes();
        let keys = self.prune_keys(limit);
        let (jobs, looked) = self.prunable_jobs(prune, limit);
        for seq in &jobs {
            self.tables.remove(*seq);
        }
        let workers = self.prunable_workers(prune, limit);
        for worker in &workers {
            self.tables.workers.remove(worker);
        }
        let over = prune.leaders_before(self.now());
        let current = &prune.leadership.name;
        self.tables.leaders.retain(|name, lease| lease.until >= over || name == current);
        let batches = self.prune_events(prune, limit);
        let workflows = self.tables.workflows.prune(prune);
        let operations = self.tables.prune_operations(prune);
        let gates = self.tables.prune_gates(limit, self.now());
        let sessions = self.prune_sessions(limit);
        Ok(Pruned {
            jobs: u32::try_from(jobs.len()).unwrap_or(u32::MAX),
            workers: u32::try_from(workers.len()).unwrap_or(u32::MAX),
            classes,
            more: [looked, workers.len(), batches, keys, gates, workflows, sessions, operations]
                .contains(&limit),
        })
    }

    /// Of the jobs that ended long ago, oldest first, those that go, and how many were looked at.
    /// Dead letters are kept for an operator, a cancelled job that is still held for its attempt's end,
    /// and the job of a key for its producer.
    fn prunable_jobs(&mut self, prune: &Prune, limit: usize) -> (Vec<Seq>, usize) {
        let keyed = self.keyed_jobs();
        let from = if prune.from_start { None } else { self.tables.pruned_to };
        let mut found: Vec<_> = self
            .tables
            .rows
            .iter()
            .filter(|(_, row)| row.job.state.is_terminal() && row.since < prune.finished_before)
            .map(|(seq, row)| (row.since, *seq))
            .filter(|place| from.is_none_or(|from| *place > from))
            .collect();
        found.sort_unstable();
        found.truncate(limit);
        self.tables.pruned_to = found.last().copied().or(from);
        let looked = found.len();
        let goes = |seq: &Seq| {
            let row = &self.tables.rows[seq];
            row.dead_letter.is_none() && row.in_flight.is_none() && !keyed.contains(&row.stored.id)
        };
        (found.into_iter().map(|(_, seq)| seq).filter(goes).collect(), looked)
    }

    fn prunable_workers(&self, prune: &Prune, limit: usize) -> Vec<WorkerId> {
        let mut found: Vec<_> = self
            .tables
            .workers
            .values()
            .filter(|worker| !worker.standing.holds_lease())
            .filter(|worker| worker.updated < prune.workers_before)
            .filter(|worker| self.tables.rows_in_flight_of(worker.id).next().is_none())
            .map(|worker| (worker.updated, worker.id))
            .collect();
        found.sort_unstable();
        found.truncate(limit);
        found.into_iter().map(|(_, worker)| worker).collect()
    }

    /// Drops batches of events of days that are old, oldest first; returns how many.
    fn prune_events(&mut self, prune: &Prune, limit: usize) -> usize {
        let before = day_of(prune.finished_before);
        let mut old: Vec<_> = self
            .tables
            .events
            .iter()
            .flat_map(|(server, batches)| batches.iter().map(move |(n, of)| (server, n, of)))
            .filter_map(|(server, n, events)| Some((events.last()?.at, *server, *n)))
            .filter(|(at, _, _)| *at < before)
            .collect();
        old.sort_unstable();
        old.truncate(limit);
        for (_, server, n) in &old {
            if let Some(batches) = self.tables.events.get_mut(server) {
                batches.remove(n);
            }
        }
        old.len()
    }
}
