//! Moving a shared store: reading it as it is at one moment, and filling an empty one.
//!
//! Reading is one transaction of `repeatable read`: no server feels it, and old rows are
//! kept until it ends. Filling wants the database for itself: from its first row on servers
//! refuse the store, until the import is done.

mod sql;

use std::collections::HashMap;
use std::time::Duration;

use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store_rules::codec;
use outlast_store_rules::transfer::row::Row;
use outlast_store_rules::transfer::{PageQuery, Part, Progress, Source, SourceFacts, Target};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_postgres::{Client, Statement};

use crate::connect::{Address, OpenConnection, Options};
use crate::error::OpenError;
use crate::failure::Failure;
use crate::migrate::{SCHEMA_VERSION, look};
use crate::row::{class_of, get};

/// Longest that one statement of a move may take.
const STATEMENT_LIMIT_MS: u32 = 120_000;
/// Longest that an answer is waited for: a little longer, for a PostgreSQL that hangs.
const ANSWER_LIMIT: Duration = Duration::from_secs(130);
/// How long sessions of a program that has just ended may take to go.
const GO_LIMIT: Duration = Duration::from_secs(5);
/// Pause before they are looked for again.
const GO_PAUSE: Duration = Duration::from_millis(50);
/// How long servers may take to take in what programs stored by SQL.
const TAKE_IN_LIMIT: Duration = Duration::from_secs(5);
/// The lock that an import holds: `outlast` as a number, and 1.
const LOCK: i64 = 0x6f75_746c_6173_7401;

/// A connection of a move, with its prepared statements.
#[derive(Debug)]
struct Session {
    client: Client,
    reader: AbortHandle,
    statements: HashMap<String, Statement>,
    time: Timestamp,
    /// Rows that are asked for at once, for each section: as many as make a page.
    rows: HashMap<&'static str, usize>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// A store as it was when it was opened for this.
#[derive(Debug)]
pub struct PostgresSource {
    session: Session,
}

impl PostgresSource {
    /// Opens the store for reading; servers may be using it.
    ///
    /// # Errors
    /// Returns why it cannot be read.
    pub async fn open(url: &str, options: &Options) -> Result<Self, OpenError> {
        let address = Address::parse(url, !options.unsafe_no_fsync)?;
        let OpenConnection { client, reader } = address.connect().await?;
        let session = Session::new(client, reader, "outlast export").await?;
        let end = Instant::now() + TAKE_IN_LIMIT;
        loop {
            session
                .client
                .batch_execute("begin isolation level repeatable read, read only")
                .await?;
            let waiting = arrivals(&session.client).await?;
            if waiting == 0 {
                break;
            }
            if Instant::now() >= end {
                return Err(OpenError::Arrivals { waiting });
            }
            session.client.batch_execute("rollback").await?;
            tokio::time::sleep(GO_PAUSE).await;
        }
        let pending = look(&session.client).await?.pending;
        if !pending.is_empty() {
            return Err(OpenError::Behind { pending });
        }
        Address::refuse_half_imported(&session.client).await?;
        Ok(Self { session: session.at(options).await? })
    }
}

/// Counts the jobs that no server has taken in: the only ones that are in no section. A store
/// of an older version has none.
async fn arrivals(client: &Client) -> Result<i64, OpenError> {
    let row = client.query_one("select to_regclass('outlast.arrival') is not null", &[]).await?;
    if !row.try_get::<_, bool>(0)? {
        return Ok(0);
    }
    Ok(client.query_one("select count(*) from outlast.arrival", &[]).await?.try_get(0)?)
}

impl Source for PostgresSource {
    fn facts(&self) -> SourceFacts {
        self.session.facts()
    }

    async fn page(&mut self, query: PageQuery<'_>) -> Result<Vec<Row>, StoreError> {
        self.session.page(query).await
    }
}

/// A store that is being filled.
#[derive(Debug)]
pub struct PostgresTarget {
    session: Session,
    place: String,
}

impl PostgresTarget {
    /// Opens the store, brings its schema up to date, and takes it for this import alone.
    ///
    /// # Errors
    /// Returns why it cannot be used, or that a server or another import uses it.
    pub async fn open(url: &str, options: &Options) -> Result<Self, OpenError> {
        let address = Address::parse(url, !options.unsafe_no_fsync)?;
        let opened = address.open().await?;
        let session = Session::new(opened.client, opened.reader, "outlast import").await?;
        if options.unsafe_no_fsync {
            session.client.batch_execute("set synchronous_commit = off").await?;
        }
        let end = Instant::now() + GO_LIMIT;
        while !alone(&session.client).await? {
            if Instant::now() >= end {
                return Err(OpenError::InUse { place: address.place() });
            }
            tokio::time::sleep(GO_PAUSE).await;
        }
        Ok(Self { session: session.at(options).await?, place: address.place() })
    }

    /// Looks again that no server is connected.
    ///
    /// # Errors
    /// Returns that one is.
    pub(crate) async fn refuse_others(&self) -> Result<(), OpenError> {
        if alone(&self.session.client).await? {
            return Ok(());
        }
        Err(OpenError::InUse { place: self.place.clone() })
    }

    /// Returns the connection. It is the only one to the store.
    pub(crate) const fn client(&self) -> &Client {
        &self.session.client
    }
}

/// Takes the lock of imports, and looks for servers. A server that opened the store before
/// an import marked it listens by then, or finds the mark when it first writes.
async fn alone(client: &Client) -> Result<bool, OpenError> {
    let row = client
        .query_one(
            "select pg_try_advisory_lock($1), exists (
                 select 1 from pg_stat_activity
                 where datname = current_database() and pid <> pg_backend_pid()
                     and application_name in ('outlast', 'outlast notify'))",
            &[&LOCK],
        )
        .await?;
    Ok(row.try_get::<_, bool>(0)? && !row.try_get::<_, bool>(1)?)
}

impl Source for PostgresTarget {
    fn facts(&self) -> SourceFacts {
        self.session.facts()
    }

    async fn page(&mut self, query: PageQuery<'_>) -> Result<Vec<Row>, StoreError> {
        self.session.page(query).await
    }
}

impl Target for PostgresTarget {
    async fn progress(&mut self) -> Result<Option<Progress>, StoreError> {
        let asked = self.session.client.query_opt(
            "select export, section, stored, done from transfer order by done, export desc limit 1",
            &[],
        );
        let row = within(asked).await?;
        let of_row = |row: tokio_postgres::Row| {
            let stored: i64 = get(&row, 2)?;
            Ok(Progress {
                export: get(&row, 0)?,
                section: get(&row, 1)?,
                stored: u64::try_from(stored).unwrap_or(0),
                done: get(&row, 3)?,
            })
        };
        row.map(of_row).transpose()
    }

    async fn write(&mut self, part: Part<'_>) -> Result<(), StoreError> {
        let Part { section, rows, progress } = part;
        let insert = self.session.prepared(sql::insert(section)).await?;
        if let Some(times) = sql::times(section, &rows) {
            let add = self.session.prepared(sql::ADD_DAYS.to_owned()).await?;
            within(self.session.client.query(&add, &[&section.name, &times])).await?;
        }
        let columns = sql::columns(section, rows);
        let values: Vec<sql::Param<'_>> =
            columns.iter().map(|column| &**column as sql::Param<'_>).collect();
        let step = within(self.session.client.transaction()).await?;
        within(step.execute(&insert, &values)).await?;
        within(keep(step.client(), progress)).await?;
        within(step.commit()).await
    }

    async fn complete(&mut self, time: Timestamp) -> Result<(), StoreError> {
        let session = &self.session;
        within(session.client.batch_execute(sql::SETTLE)).await?;
        mark_labelled(&session.client).await?;
        // This store's clock is PostgreSQL's. It cannot be set from here.
        if session.time < time {
            let behind_ms = time.0.saturating_sub(session.time.0);
            tracing::warn!(
                behind_ms,
                "PostgreSQL's clock is behind the time of the export: leases and timers are \
                 judged later by that much"
            );
        }
        Ok(())
    }

    async fn keep(&mut self, at: &Progress) -> Result<(), StoreError> {
        within(keep(&self.session.client, at)).await
    }
}

/// Marks the classes and queues that plain clients may not take from: an export does not say so.
async fn mark_labelled(client: &Client) -> Result<(), StoreError> {
    let columns = "select id, queue, job_type, route, tenant, isolated, keyed from class";
    let mut classes = Vec::new();
    for row in &within(client.query(columns, &[])).await? {
        let (id, key) = class_of(row)?;
        if !key.is_for_plain_clients() {
            classes.push(id.0);
        }
    }
    let update = "update class set plain = false where id = any($1)";
    within(client.execute(update, &[&classes])).await?;
    let mut queues = Vec::new();
    let columns = "select name, settings from queue where settings is not null";
    for row in &within(client.query(columns, &[])).await? {
        let settings: String = get(row, 1)?;
        if !codec::settings_of(&settings)?.placement.takes_unlabelled() {
            queues.push(get::<String>(row, 0)?);
        }
    }
    let update = "update queue set labels_required = true where name = any($1)";
    within(client.execute(update, &[&queues])).await?;
    Ok(())
}

async fn keep(client: &Client, at: &Progress) -> Result<(), tokio_postgres::Error> {
    let stored = crate::row::int(at.stored);
    client
        .execute(
            "insert into transfer (export, section, stored, done) values ($1, $2, $3, $4)
             on conflict (export) do update
                 set section = excluded.section, stored = excluded.stored, done = excluded.done",
            &[&at.export, &at.section, &stored, &at.done],
        )
        .await
        .map(|_| ())
}

/// Waits for an answer, within a limit.
async fn within<T>(
    asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(ANSWER_LIMIT, asked).await {
        Ok(answer) => answer.map_err(|error| Failure::from(error).into()),
        Err(_elapsed) => Err(StoreError::Unavailable("no answer in time".into())),
    }
}

impl Session {
    /// Rows are read by key, in order: a plan that sorts a whole table for each page can
    /// only be a mistake about its size.
    async fn new(client: Client, reader: AbortHandle, name: &str) -> Result<Self, OpenError> {
        let settings = format!(
            "set search_path = outlast, public; set timezone = 'UTC'; set jit = off;
             set default_transaction_isolation = 'read committed';
             set default_transaction_read_only = off; set lock_timeout = '10s';
             set idle_in_transaction_session_timeout = 0;
             set statement_timeout = {STATEMENT_LIMIT_MS};
             set plan_cache_mode = force_generic_plan; set enable_seqscan = off;
             set enable_bitmapscan = off; set application_name = '{name}'"
        );
        client.batch_execute(&settings).await?;
        Ok(Self {
            client,
            reader,
            statements: HashMap::new(),
            time: Timestamp::default(),
            rows: HashMap::new(),
        })
    }

    /// Looks at the clock.
    async fn at(mut self, options: &Options) -> Result<Self, OpenError> {
        let server_time = self.client.query_one(crate::writer::NOW, &[]).await?;
        let server_time = Timestamp(server_time.try_get(0)?);
        self.time = options.clock.as_ref().map_or(server_time, |clock| clock.now());
        Ok(self)
    }

    fn facts(&self) -> SourceFacts {
        SourceFacts { kind: "postgres", schema: SCHEMA_VERSION, time: self.time }
    }

    async fn prepared(&mut self, sql: String) -> Result<Statement, StoreError> {
        if let Some(statement) = self.statements.get(&sql) {
            return Ok(statement.clone());
        }
        let statement = within(self.client.prepare(&sql)).await?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    async fn page(&mut self, query: PageQuery<'_>) -> Result<Vec<Row>, StoreError> {
        let PageQuery { section, after, page } = query;
        let select = self.prepared(sql::select(section, after.is_some())).await?;
        let wanted = self.rows.entry(section.name).or_insert(sql::FIRST_ROWS);
        let limit = (*wanted).clamp(1, page.rows);
        let key = after.map_or(&[][..], Vec::as_slice).iter().take(section.key);
        let values = key.map(sql::value).chain([sql::count(limit)]).collect();
        let asked = sql::read(&self.client, &select, section, values, page.bytes);
        let rows = match tokio::time::timeout(ANSWER_LIMIT, asked).await {
            Ok(rows) => rows?,
            Err(_elapsed) => return Err(StoreError::Unavailable("no answer in time".into())),
        };
        // So that few rows are sent in vain when they are long.
        *wanted = if rows.len() < limit { (rows.len() * 2).max(1) } else { limit * 4 };
        Ok(rows)
    }
}
