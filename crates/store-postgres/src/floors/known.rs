//! What is known of one key, and what a look at it reads and says.

use std::collections::BTreeMap;

use super::{BLOCK_BITS, Block, Place, Range};

/// Most ranges that one scan gets; the last then reaches to the end.
const RANGES_MAX: usize = 32;
/// Most blocks that a look reads of one key.
const BLOCKS_LOOKED_AT: usize = 256;

/// A block that is to be read.
#[derive(Debug, Default)]
pub(super) struct Readable {
    /// Transactions that may put rows there and have not ended.
    pub(super) holds: u32,
    /// When the latest of them began or ended.
    pub(super) ticket: u64,
}

/// What is known of a key.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Where the open range of each rank begins; empty until the first look.
    floors: BTreeMap<i64, i64>,
    /// Blocks in which there may be rows, also such that are not below a floor.
    pub(super) blocks: BTreeMap<Block, Readable>,
}

/// What a look reads, range by range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of a key of which nothing is known.
    Whole,
    /// Before the first rank.
    Lead,
    Block(Block),
    /// From the floor of a rank on.
    Open(i64),
    /// Between blocks below the floor of a rank.
    Below,
}

/// A look to be made.
#[derive(Debug)]
pub(crate) struct Look<K> {
    pub(super) ticket: u64,
    pub(super) is_full: bool,
    pub(super) parts: Vec<Part>,
    /// The ranges; below floors, more than the first row is asked for.
    pub(crate) ranges: Vec<Range<K>>,
}

impl<K> Look<K> {
    pub(super) fn add(&mut self, part: Part, range: Range<K>) {
        self.parts.push(part);
        self.ranges.push(range);
    }

    /// Whether the range is one below a floor.
    pub(crate) fn is_below(&self, nth: usize) -> bool {
        self.parts.get(nth) == Some(&Part::Below)
    }
}

/// What a look read of one range.
pub(super) struct Read<'a> {
    pub(super) rows: &'a [Place],
    /// Whether there are no more than these.
    pub(super) is_all: bool,
    /// Up to which number all jobs were to be seen.
    pub(super) decided: i64,
    /// When the look began.
    pub(super) ticket: u64,
}

impl Known {
    pub(super) fn is_seen(&self) -> bool {
        !self.floors.is_empty()
    }

    /// Forgets floors, and blocks in which nothing happened since; returns whether anything is left.
    pub(super) fn forget_floors(&mut self, ticket: u64) -> bool {
        self.floors.clear();
        self.blocks.retain(|_, block| block.holds > 0 || block.ticket > ticket);
        !self.blocks.is_empty()
    }

    /// Makes a block readable, and knows its rank from now on.
    pub(super) fn make_readable(&mut self, block: Block) -> &mut Readable {
        if self.is_seen() {
            self.learn_rank(block.rank);
        }
        self.blocks.entry(block).or_default()
    }

    /// Returns below which number there are no rows, at any rank.
    pub(super) fn lowest_seq(&self) -> Option<i64> {
        let blocks = self.blocks.keys().filter(|it| !it.is_of_new_jobs()).map(|it| it.start());
        self.floors.values().copied().chain(blocks).min().filter(|_| self.is_seen())
    }

    /// Returns the blocks below the floor of a rank, each with where it ends.
    fn below(&self, rank: i64, floor: i64) -> impl Iterator<Item = (Block, i64)> {
        let all = Block { rank, nth: i64::MIN }..=Block { rank, nth: i64::MAX };
        let below = self.blocks.range(all).map(|(block, _)| *block);
        let below = below.filter(|block| !block.is_of_new_jobs());
        below
            .take_while(move |block| block.start() < floor)
            .map(move |block| (block, block.end().min(floor)))
    }

    /// Returns each rank with its floor and where the next rank begins.
    fn open(&self) -> impl Iterator<Item = (i64, i64, Place)> {
        let next = self.floors.keys().skip(1).map(|rank| Place { rank: *rank, seq: i64::MIN });
        let next = next.chain(std::iter::once(Place::END));
        self.floors.iter().zip(next).map(|((rank, floor), to)| (*rank, *floor, to))
    }

    pub(super) fn ranges<K: Copy>(&self, key: K, ranges: &mut Vec<Range<K>>) {
        if !self.is_seen() {
            ranges.push(Range::whole(key));
            return;
        }
        let first = ranges.len();
        for (rank, floor, to) in self.open() {
            for (block, end) in self.below(rank, floor) {
                let (from, end) = (Place { rank, seq: block.start() }, Place { rank, seq: end });
                let is_next = ranges.len() > first;
                match ranges.last_mut().filter(|last| is_next && last.to == from) {
                    Some(last) => last.to = end,
                    None => ranges.push(Range { key, from, to: end }),
                }
            }
            ranges.push(Range { key, from: Place { rank, seq: floor }, to });
        }
        if ranges.len() - first > RANGES_MAX {
            ranges.truncate(first + RANGES_MAX);
            if let Some(last) = ranges.last_mut() {
                last.to = Place::END;
            }
        }
    }

    /// Adds what a look reads of the key.
    pub(super) fn parts<K: Copy>(&self, key: K, look: &mut Look<K>) {
        if let Some(first) = self.floors.keys().next() {
            let to = Place { rank: *first, seq: i64::MIN };
            look.add(Part::Lead, Range { key, from: Place::START, to });
        }
        let mut looked_at = 0;
        for (rank, floor, to) in self.open() {
            let at = |seq: i64| Place { rank, seq };
            let mut from = i64::MIN;
            for (block, end) in self.below(rank, floor) {
                if looked_at >= BLOCKS_LOOKED_AT {
                    from = floor;
                    break;
                }
                looked_at += 1;
                if look.is_full && from < block.start() {
                    look.add(Part::Below, Range { key, from: at(from), to: at(block.start()) });
                }
                look.add(Part::Block(block), Range { key, from: at(block.start()), to: at(end) });
                from = end;
            }
            if look.is_full && from < floor {
                look.add(Part::Below, Range { key, from: at(from), to: at(floor) });
            }
            look.add(Part::Open(rank), Range { key, from: at(floor), to });
        }
    }

    pub(super) fn take_in<K>(&mut self, part: Part, range: &Range<K>, read: &Read<'_>) {
        match part {
            Part::Whole => self.take_in_whole(read),
            Part::Lead => read.rows.iter().for_each(|row| self.learn_rank(row.rank)),
            Part::Block(block) => {
                if read.rows.is_empty() {
                    self.drop_block(block, read.ticket);
                }
            }
            Part::Open(rank) => self.raise(rank, range.from.seq, read),
            Part::Below => {
                match read.rows.first() {
                    // So many that the floor is wrong.
                    Some(first) if !read.is_all => {
                        if let Some(floor) = self.floors.get_mut(&first.rank) {
                            *floor = first.seq.min(*floor);
                        }
                    }
                    _ => self.read_blocks_of(read.rows),
                }
            }
        }
    }

    fn learn_rank(&mut self, rank: i64) {
        self.floors.entry(rank).or_insert(i64::MIN);
    }

    fn take_in_whole(&mut self, read: &Read<'_>) {
        if self.is_seen() {
            return;
        }
        let rank = read.rows.first().map_or(0, |row| row.rank);
        let ranks: Vec<i64> = self.blocks.keys().map(|block| block.rank).collect();
        ranks.into_iter().chain([rank]).for_each(|rank| self.learn_rank(rank));
        self.raise(rank, i64::MIN, read);
    }

    /// Makes blocks readable in which there are rows.
    fn read_blocks_of(&mut self, rows: &[Place]) {
        for row in rows {
            // The next look that finds nothing there drops it.
            self.blocks.entry(row.block()).or_default();
        }
    }

    fn drop_block(&mut self, block: Block, ticket: u64) {
        if self.blocks.get(&block).is_some_and(|it| it.holds == 0 && it.ticket < ticket) {
            self.blocks.remove(&block);
        }
    }

    /// Raises a floor that was `from` when the look began.
    fn raise(&mut self, rank: i64, from: i64, read: &Read<'_>) {
        let Some(floor) = self.floors.get(&rank).copied().filter(|floor| *floor == from) else {
            return;
        };
        let limit = read.decided.saturating_add(1);
        let own = || read.rows.iter().filter(|row| row.rank == rank);
        let found: Vec<Place> = own().filter(|row| row.seq < limit).copied().collect();
        let raised = match own().next() {
            Some(first) if !read.is_all => first.seq.min(limit),
            _ => limit,
        };
        let raised = raised.max(floor);
        self.floors.insert(rank, raised);
        read.rows.iter().for_each(|row| self.learn_rank(row.rank));
        // What was read from the old floor on is empty, or found, or read with the open range.
        let first = Block { rank, nth: from >> BLOCK_BITS };
        let blocks: Vec<Block> = self
            .blocks
            .range(first..=Block { rank, nth: i64::MAX })
            .map(|(block, _)| *block)
            .filter(|block| block.start() >= from)
            .collect();
        let blocks = blocks.into_iter().chain([Block::of_new_jobs(rank)]);
        blocks.for_each(|block| self.drop_block(block, read.ticket));
        if read.is_all {
            self.read_blocks_of(&found);
        }
    }
}
