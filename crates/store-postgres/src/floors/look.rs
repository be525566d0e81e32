//! Making looks: on a connection of their own, beside the batches. However long they take, the server
//! reads what it needs.

use std::hash::Hash;
use std::sync::Arc;

use outlast_store::StoreError;
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::arrivals::Arrivals;
use super::holders::Holders;
use super::sweeps::Sweeps;
use super::{Floors, Found, Heard, Look, Place, Range};
use crate::read::{Reader, Readers};
use crate::row::get;

/// The last number that was drawn, and how many pages of a table and its index were read so far.
macro_rules! before {
    ($table:literal, $index:literal) => {
        concat!(
            "select last_value, (coalesce(pg_stat_get_xact_blocks_fetched('",
            $table,
            "'::regclass), 0) + coalesce(pg_stat_get_xact_blocks_fetched('",
            $index,
            "'::regclass), 0))::bigint from job_seq"
        )
    };
}

/// Reads the first rows of ranges, and which transactions the snapshot shows.
macro_rules! look {
    ($of:literal, $rows:expr) => {
        concat!(
            "select pg_snapshot_xmin(s.now)::text::bigint, pg_snapshot_xmax(s.now)::text::bigint,
                 f.nth, f.rank, f.seq
             from (select pg_current_snapshot() as now) s
             left join (
                 select w.nth, f.rank, f.seq
                 from unnest($1::",
            $of,
            "[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
                     with ordinality w(key, rank, seq, to_rank, to_seq, nth)
                 cross join lateral (",
            $rows,
            ") f) f on true
             order by f.nth, f.rank, f.seq"
        )
    };
}

const READY_BEFORE: &str = before!("ready", "ready_pkey");

/// The first claimable jobs of ranges, no more than `$limit` of each.
macro_rules! look_at_ready {
    ($limit:literal) => {
        look!(
            "bigint",
            concat!(
                "select r.rank, r.seq from ready r
                 where r.class = w.key and (r.rank, r.seq) >= (w.rank, w.seq)
                     and (r.rank, r.seq) < (w.to_rank, w.to_seq)
                 order by r.class, r.rank, r.seq limit ",
                $limit
            )
        )
    };
}

const READY: &str = look_at_ready!("1");
const READY_BELOW: &str = look_at_ready!("200");

const ACTIVE_BEFORE: &str = before!("active", "active_worker");
const ACTIVE: &str = look!(
    "uuid",
    "select 0::bigint as rank, a.seq from active a
     where a.worker is not null and (a.worker, a.seq) >= (w.key, w.seq)
         and (a.worker, a.seq) < (w.key, w.to_seq)
     order by a.worker, a.seq limit 2000"
);

/// The statements that look for one sort of key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texts {
    before: &'static str,
    first: &'static str,
    below: &'static str,
    /// How many rows of a range `first` asks for.
    asked: usize,
}

/// Claimable jobs, by class.
const OF_CLASSES: Texts =
    Texts { before: READY_BEFORE, first: READY, below: READY_BELOW, asked: 1 };
/// Attempts, by the worker that holds them. All are of rank 0.
const OF_WORKERS: Texts =
    Texts { before: ACTIVE_BEFORE, first: ACTIVE, below: ACTIVE, asked: 2_000 };

/// What a process knows about where rows are, for all its writers and readers.
#[derive(Clone, Debug)]
pub(crate) struct AllFloors {
    /// Of claimable jobs, by class.
    pub(crate) ready: Arc<Floors<i64>>,
    /// Of attempts, by worker.
    pub(crate) active: Arc<Floors<Uuid>>,
    /// Of what is due.
    pub(crate) sweeps: Arc<Sweeps>,
    /// Of jobs that programs stored by SQL.
    pub(crate) arrivals: Arc<Arrivals>,
    /// Of workers without a lease that hold attempts.
    pub(crate) holders: Arc<Holders>,
}

impl AllFloors {
    pub(crate) fn new() -> Self {
        Self {
            ready: Arc::new(Floors::new(Heard::ByOthers)),
            active: Arc::new(Floors::new(Heard::ByNone)),
            sweeps: Arc::default(),
            arrivals: Arc::default(),
            holders: Arc::default(),
        }
    }

    /// Forgets all: numbers begin again.
    pub(crate) fn forget(&self) {
        self.ready.forget();
        self.active.forget();
        self.arrivals.forget();
    }

    /// Notes that other servers may have put rows anywhere.
    pub(crate) fn missed(&self) {
        self.ready.missed();
        self.active.missed();
    }

    /// Looks, if it is time and something was read since the last look.
    pub(crate) fn keep(&self, readers: &Readers) {
        keep(&self.ready, readers, OF_CLASSES);
        keep(&self.active, readers, OF_WORKERS);
    }
}

fn keep<K>(floors: &Arc<Floors<K>>, readers: &Readers, texts: Texts)
where
    K: ToSql + Copy + Eq + Hash + Ord + Send + Sync + std::fmt::Debug + 'static,
{
    let Some(at) = floors.schedule(Instant::now()) else { return };
    let (floors, readers) = (Arc::clone(floors), readers.clone());
    tokio::spawn(async move {
        tokio::time::sleep_until(at).await;
        let reader = match readers.get().await {
            Ok(reader) => reader,
            Err(error) => {
                tracing::debug!(%error, "no connection to look where rows begin");
                return floors.put_off(Instant::now());
            }
        };
        let began = Instant::now();
        let look = floors.begin(began);
        match find(&reader, &look, texts).await {
            Ok(found) => floors.end(&look, &found),
            Err(error) => {
                tracing::debug!(%error, "failed to look where rows begin");
                floors.fail(&look, began.elapsed(), Instant::now());
            }
        }
    });
}

/// Opens a look. The rows of a range come in the order of the index, and are no more than asked for:
/// a plan by the table's size, which may be out of date, could read all and sort them.
const BEGIN: &str = "begin; set local enable_seqscan = off; set local enable_bitmapscan = off";

async fn find<K>(reader: &Reader, look: &Look<K>, texts: Texts) -> Result<Found, StoreError>
where
    K: ToSql + Copy + Sync + std::fmt::Debug,
{
    // PostgreSQL takes what it counted away from time to time, but not within a transaction.
    reader.say(BEGIN).await?;
    let found = find_counted(reader, look, texts).await;
    reader.say(if found.is_ok() { "commit" } else { "rollback" }).await?;
    found
}

async fn find_counted<K>(reader: &Reader, look: &Look<K>, texts: Texts) -> Result<Found, StoreError>
where
    K: ToSql + Copy + Sync + std::fmt::Debug,
{
    let began = Instant::now();
    let before = counts(reader, texts).await?;
    let mut rows = vec![Vec::new(); look.ranges.len()];
    // Every transaction that drew a number up to the last one was running when this snapshot was
    // taken, or had ended: so the number is read first. But not long before, as floors rise no
    // further.
    let shown = Wanted::of(look, texts.first, false).read(reader, &mut rows).await?;
    // What is below floors may take long, and its snapshot is a later one. It proves nothing about
    // numbers: rows that it finds are there, and those that come are found by the next full look.
    let below = Wanted::of(look, texts.below, true);
    if !below.nths.is_empty() {
        below.read(reader, &mut rows).await?;
    }
    let after = counts(reader, texts).await?;
    Ok(Found {
        rows,
        asked: texts.asked,
        last: before.last,
        xmin: shown.xmin,
        xmax: shown.xmax,
        pages: after.pages - before.pages,
        began,
        took: began.elapsed(),
    })
}

struct Counts {
    /// The last number that was drawn.
    last: i64,
    /// How many pages the transaction has read.
    pages: i64,
}

async fn counts(reader: &Reader, texts: Texts) -> Result<Counts, StoreError> {
    let row = reader.one(texts.before, &[]).await?;
    let row = row.ok_or_else(|| StoreError::Corrupt("no sequence of jobs".into()))?;
    Ok(Counts { last: get(&row, 0)?, pages: get(&row, 1)? })
}

/// The ranges of a look that one statement reads.
struct Wanted<'a, K> {
    look: &'a Look<K>,
    sql: &'static str,
    /// Their places among the look's ranges.
    nths: Vec<usize>,
}

/// Which transactions a snapshot shows: all below `xmin`, and none from `xmax` on.
struct Shown {
    xmin: i64,
    xmax: i64,
}

impl<'a, K: ToSql + Copy + Sync + std::fmt::Debug> Wanted<'a, K> {
    /// Those below floors, or the others.
    fn of(look: &'a Look<K>, sql: &'static str, below: bool) -> Self {
        let nths = (0..look.ranges.len()).filter(|nth| look.is_below(*nth) == below).collect();
        Self { look, sql, nths }
    }

    /// Adds the rows of each range.
    async fn read(&self, reader: &Reader, rows: &mut [Vec<Place>]) -> Result<Shown, StoreError> {
        let ranges = self.nths.iter().filter_map(|nth| self.look.ranges.get(*nth));
        let columns = Columns::of(ranges);
        let found = reader.all(self.sql, &columns.values()).await?;
        let mut shown = Shown { xmin: i64::MIN, xmax: i64::MIN };
        for row in &found {
            shown = Shown { xmin: get(row, 0)?, xmax: get(row, 1)? };
            let Some(place) = place_of(row)? else { continue };
            let nth: i64 = get(row, 2)?;
            let nth = usize::try_from(nth - 1).ok().and_then(|nth| self.nths.get(nth));
            if let Some(rows) = nth.and_then(|nth| rows.get_mut(*nth)) {
                rows.push(place);
            }
        }
        Ok(shown)
    }
}

fn place_of(row: &Row) -> Result<Option<Place>, StoreError> {
    let rank: Option<i64> = get(row, 3)?;
    let seq: Option<i64> = get(row, 4)?;
    Ok(rank.zip(seq).map(|(rank, seq)| Place { rank, seq }))
}

/// Ranges as columns for a statement.
#[derive(Debug)]
pub(crate) struct Columns<K> {
    pub(crate) keys: Vec<K>,
    pub(crate) ranks: Vec<i64>,
    pub(crate) seqs: Vec<i64>,
    pub(crate) to_ranks: Vec<i64>,
    pub(crate) to_seqs: Vec<i64>,
}

impl<K: ToSql + Sync + std::fmt::Debug> Columns<K> {
    fn values(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.keys, &self.ranks, &self.seqs, &self.to_ranks, &self.to_seqs]
    }
}

impl<K: Copy> Columns<K> {
    pub(crate) fn of<'a>(ranges: impl IntoIterator<Item = &'a Range<K>>) -> Self
    where
        K: 'a,
    {
        let mut columns = Self {
            keys: Vec::new(),
            ranks: Vec::new(),
            seqs: Vec::new(),
            to_ranks: Vec::new(),
            to_seqs: Vec::new(),
        };
        for range in ranges {
            columns.keys.push(range.key);
            columns.ranks.push(range.from.rank);
            columns.seqs.push(range.from.seq);
            columns.to_ranks.push(range.to.rank);
            columns.to_seqs.push(range.to.seq);
        }
        columns
    }
}
