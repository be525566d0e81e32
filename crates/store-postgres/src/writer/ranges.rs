//! Where claims begin in the indexes of claimable jobs: see [`crate::floors`].

use outlast_store::command::ClassId;
use outlast_store_rules::apply::claim::lane_scan::LaneRange;

use crate::connection::{Statement, values};
use crate::floors::look::Columns;
use crate::writer::Tx;
use crate::writer::lanes::LANES;

impl Tx<'_> {
    /// Returns where claimable jobs of the classes may be.
    pub(super) fn ranges_of(&self, classes: &[ClassId]) -> Columns<i64> {
        let ranges = self.holds.ready.floors().ranges(classes.iter().map(|class| class.0));
        Columns::of(&ranges)
    }

    /// Returns rank and number of the place before which each of the classes has no jobs.
    pub(super) fn lowest_of(&self, classes: &[i64]) -> (Vec<i64>, Vec<i64>) {
        let floors = self.holds.ready.floors();
        classes.iter().map(|class| floors.lowest(*class)).map(|it| (it.rank, it.seq)).unzip()
    }

    /// Reads at most `most` lanes of each range.
    pub(super) fn lanes_of(&self, ranges: &[LaneRange], most: u32) -> Statement {
        let (mut numbers, mut classes, mut low) = (Vec::new(), Vec::new(), Vec::new());
        let (mut after, mut upto) = (Vec::new(), Vec::new());
        for (nth, range) in (0_i64..).zip(ranges) {
            numbers.push(nth);
            classes.push(range.class.0);
            after.push(range.after);
            upto.push(range.upto);
            low.push(self.holds.ready.floors().lowest_seq(range.class.0));
        }
        let (ranks, seqs) = self.lowest_of(&classes);
        let most = i32::try_from(most).unwrap_or(i32::MAX);
        Statement::new(LANES, values![numbers, classes, after, upto, most, ranks, seqs, low])
    }
}
