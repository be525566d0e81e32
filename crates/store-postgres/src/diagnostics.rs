//! What PostgreSQL says about itself, for operators. Nothing is changed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outlast_store_rules::migration::{Mismatch, SchemaStatus};
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::connect::{Address, ENCODING};
use crate::error::OpenError;
use crate::migrate;

/// How often a commit is timed.
const COMMITS: usize = 5;
/// Dead rows below this are everyday business.
const DEAD_MIN: i64 = 100_000;

/// What was found.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    /// Host and port.
    pub place: String,
    /// Version in words, and as a number.
    pub version: (String, i32),
    /// Encoding of the database, if it cannot hold every text.
    pub bad_encoding: Option<String>,
    /// Settings that are off although a crash then loses what was acknowledged.
    pub not_durable: Vec<&'static str>,
    /// Connections that are open, and how many there may be.
    pub connections: (i64, i64),
    /// Median time of a commit; none where nothing can be written.
    pub commit: Option<Duration>,
    /// Whether the server is a replica or the database read-only.
    pub read_only: bool,
    /// Rights that the role lacks to migrate the store.
    pub lacking: Vec<&'static str>,
    /// Which migrations were applied.
    pub standing: Result<SchemaStatus, Mismatch>,
    /// How far PostgreSQL's clock is ahead of this host's, in seconds.
    pub ahead: f64,
    /// Whether dead rows are removed.
    pub autovacuum: bool,
    /// The oldest open transaction of others: how long, and whose.
    pub oldest: Option<(Duration, String)>,
    /// Laws that are broken, and by how many jobs; `None` when it would take too long to tell.
    pub broken: Option<Vec<(&'static str, u64)>>,
    /// Hot tables with many more dead rows than live ones: name, live, dead.
    pub bloated: Vec<(String, i64, i64)>,
}

const LOOK: &str = "
    select current_setting('server_version'), current_setting('server_version_num')::int,
        current_setting('fsync') = 'off', current_setting('synchronous_commit') = 'off',
        current_setting('full_page_writes') = 'off',
        (select count(*) from pg_stat_activity where backend_type = 'client backend'),
        current_setting('max_connections')::bigint
            - current_setting('superuser_reserved_connections')::bigint,
        pg_is_in_recovery() or current_setting('default_transaction_read_only') = 'on',
        has_database_privilege(current_database(), 'create'),
        has_schema_privilege('public', 'create'),
        current_setting('autovacuum') = 'on',
        extract(epoch from clock_timestamp())::float8, current_setting('server_encoding')";

const OLDEST: &str = "
    select extract(epoch from clock_timestamp() - xact_start)::float8,
        format('pid %s, %s, %s, user %s', pid, state, application_name, usename)
    from pg_stat_activity
    where xact_start is not null and pid <> pg_backend_pid() and datname = current_database()
        and backend_type = 'client backend'
    order by xact_start limit 1";

const BLOATED: &str = "
    select relname::text, n_live_tup, n_dead_tup from pg_stat_user_tables
    where schemaname in ('outlast', 'public') and n_dead_tup > $1 and n_dead_tup > 4 * n_live_tup
        and relname in ('ready', 'waiting', 'active', 'expiry', 'worker')
    order by n_dead_tup desc";

/// What must hold of every job that has not ended, as queries that count those of which it
/// does not. What has ended is too much to be counted here.
const LAWS: [(&str, &str); 3] = [
    (
        "in two states at once",
        "select count(*) from (select seq from place group by seq having count(*) > 1) as twice",
    ),
    ("in a state and ended", "select count(*) from place join finished using (seq)"),
    (
        "in a state and not stored",
        "select count(*) from place left join job_row using (seq) where job_row.seq is null",
    ),
];

/// Where a job is. A cancelled one has ended while its processes are waited for.
const PLACE: &str = "with place as (select seq from ready union all select seq from waiting
    union all select seq from active where not cancelled) ";
/// Longest that one law may take.
const LAW_LIMIT_S: u32 = 10;

/// Looks at the database that an address names.
///
/// # Errors
/// Returns why it cannot be looked at.
pub async fn diagnose(url: &str) -> Result<Diagnostics, OpenError> {
    let address = Address::parse(url, false)?;
    let mut client = address.connect().await?.client;
    let before = wall();
    let row = client.query_one(LOOK, &[]).await?;
    let ahead = row.try_get::<_, f64>(11)? - f64::midpoint(before, wall());
    let encoding: String = row.try_get(12)?;
    let bad_encoding = (encoding != ENCODING).then_some(encoding);
    let mut not_durable = Vec::new();
    for (at, name) in [(2, "fsync"), (3, "synchronous_commit"), (4, "full_page_writes")] {
        if row.try_get(at)? {
            not_durable.push(name);
        }
    }
    let mut lacking = Vec::new();
    for (at, right) in [(8, "create on the database"), (9, "create on schema public")] {
        if !row.try_get::<_, bool>(at)? {
            lacking.push(right);
        }
    }
    let read_only = row.try_get(7)?;
    let standing = match migrate::look(&client).await {
        Ok(standing) => Ok(standing),
        Err(OpenError::Schema(mismatch)) => Err(mismatch),
        Err(error) => return Err(error),
    };
    let mut oldest = None;
    if let Some(row) = client.query_opt(OLDEST, &[]).await? {
        let open = Duration::try_from_secs_f64(row.try_get(0)?).unwrap_or_default();
        oldest = Some((open, row.try_get(1)?));
    }
    let mut bloated = Vec::new();
    for row in client.query(BLOATED, &[&DEAD_MIN]).await? {
        bloated.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    }
    let broken = match &standing {
        Ok(standing) if standing.pending.is_empty() => broken(&mut client).await?,
        _ => None,
    };
    Ok(Diagnostics {
        broken,
        place: address.place(),
        version: (row.try_get(0)?, row.try_get(1)?),
        bad_encoding,
        not_durable,
        connections: (row.try_get(5)?, row.try_get(6)?),
        commit: if read_only { None } else { Some(commit(&client).await?) },
        read_only,
        lacking,
        standing,
        ahead,
        autovacuum: row.try_get(10)?,
        oldest,
        bloated,
    })
}

/// Counts broken laws, all at one moment.
async fn broken(client: &mut Client) -> Result<Option<Vec<(&'static str, u64)>>, OpenError> {
    let view = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let settings =
        format!("set local search_path = outlast; set local statement_timeout = '{LAW_LIMIT_S}s'");
    view.batch_execute(&settings).await?;
    let mut broken = Vec::new();
    for (law, query) in LAWS {
        match view.query_one(&format!("{PLACE}{query}"), &[]).await {
            Ok(row) => {
                let count: i64 = row.try_get(0)?;
                if let Some(count) = u64::try_from(count).ok().filter(|count| *count > 0) {
                    broken.push((law, count));
                }
            }
            Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(broken))
}

/// Times commits of something that is written and stored nowhere.
async fn commit(client: &Client) -> Result<Duration, OpenError> {
    let mut taken = Vec::with_capacity(COMMITS);
    for _ in 0..COMMITS {
        let before = Instant::now();
        client
            .batch_execute("select pg_logical_emit_message(true, 'outlast doctor', 'commit')")
            .await?;
        taken.push(before.elapsed());
    }
    taken.sort();
    Ok(taken.get(COMMITS / 2).copied().unwrap_or_default())
}

/// This host's clock, in seconds.
#[expect(clippy::disallowed_methods, reason = "clocks of two hosts are compared")]
fn wall() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
