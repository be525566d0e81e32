//! Addresses, session settings, durability.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::time::Timestamp;
use outlast_store::Clock;
use outlast_store_rules::migration::SchemaStatus;
use tokio::task::AbortHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Client, Config, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;
use uuid::Uuid;

use crate::connection::Connection;
use crate::error::OpenError;
use crate::failure::words;
use crate::hosts::{Hosts, Role, take_session_attrs};
use crate::lineage::{Found, Lineage};
use crate::migrate;
use crate::silence::ConnectionId;
use crate::tls::Wanted;
use crate::writer::STATEMENT_LIMIT;

/// Longest that connecting may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// How often two sessions are asked whether they are the same one.
const POOLING_ROUNDS: usize = 4;
/// How often a host that says nothing is asked whether it is there; after three times it counts as
/// gone.
const KEEPALIVE: Duration = Duration::from_secs(4);
/// Longest that a read may take, so that none holds old rows back for long.
const READ_LIMIT_MS: u32 = 30_000;
/// Longest that a transaction may do nothing.
const IDLE_LIMIT_MS: u32 = 10_000;
/// Longest that a batch waits for a row that another transaction holds: everything behind it
/// waits as long.
const LOCK_LIMIT_MS: u32 = 500;

/// Longest that a read waits for a table that another transaction has locked.
const READ_LOCK_LIMIT_MS: u32 = 5_000;
/// Longest that one statement may take which looks after history: it may read a whole day.
const MAINTAIN_LIMIT_MS: u32 = 120_000;
/// Longest that it waits for a table.
const MAINTAIN_LOCK_LIMIT_MS: u32 = 100;

/// The encoding of a database that can hold every text.
pub(crate) const ENCODING: &str = "UTF8";

/// Settings of every session, whatever its role or database says.
const SESSION: &str = "set search_path = outlast, public; set timezone = 'UTC'; set jit = off;
             set default_transaction_isolation = 'read committed';";

/// How to open a store.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Runs without waiting for the disk: a crash of PostgreSQL loses acknowledged jobs.
    /// For experiments only.
    pub unsafe_no_fsync: bool,
    /// A clock to use instead of PostgreSQL's, for tests.
    pub clock: Option<Arc<dyn Clock>>,
}

/// Where the store is and how its sessions are set.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    hosts: Hosts,
    durable: bool,
    tls: Tls,
    /// Longest that one statement of a batch may take.
    statement_limit: Duration,
    /// The generations that the store had when it was opened.
    generation: Option<Generation>,
    /// What this server has acknowledged, and must find on a new primary; none while it is dealt
    /// with that something is missing.
    lineage: Option<Lineage>,
    /// Whether it writes although another server has raised the generation.
    is_recovering: bool,
}

/// How often a store went back in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    /// Rises with each restore, and when commits are lost.
    pub(crate) number: u64,
    /// The number of the latest restore.
    pub(crate) restored: u64,
}

#[derive(Clone)]
struct Tls {
    wanted: Wanted,
    connector: MakeRustlsConnect,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.wanted.fmt(f)
    }
}

/// What is called with each message on the channels that a connection listens to.
pub(crate) type OnNotice = Arc<dyn Fn(&str) + Send + Sync>;

/// A connection, with what ends the task that reads from it.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    pub(crate) client: Client,
    pub(crate) reader: AbortHandle,
}

/// A connection on which a store was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) client: Client,
    /// Ends the task that reads from the connection.
    pub(crate) reader: AbortHandle,
    /// Migrations that ran.
    pub(crate) migrated: Vec<&'static str>,
}

/// When a reader's statements are planned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plans {
    /// Each time, for the values that are asked with: lists have many filters.
    ForValues,
    /// Once: what is asked again and again by its key takes less time than its plan.
    Kept,
}

impl Address {
    pub(crate) fn parse(url: &str, durable: bool) -> Result<Self, OpenError> {
        let wrong = |reason: String| OpenError::Address { url: without_password(url), reason };
        let (rest, wanted) = Wanted::take(url).map_err(wrong)?;
        let rest = take_session_attrs(&rest).map_err(wrong)?;
        let connector = wanted.connector().map_err(wrong)?;
        let config: Config = rest.parse().map_err(|error| wrong(words(&error)))?;
        if config.get_dbname().is_none() {
            return Err(wrong("it names no database".into()));
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(wrong("it names no host".into()));
        }
        let prepare = |config: &mut Config| {
            // A socket of this host is not encrypted, whatever the mode, as with libpq.
            let is_local = matches!(config.get_hosts().first(), Some(Host::Unix(_)));
            config.ssl_mode(if is_local { SslMode::Disable } else { wanted.mode() });
            config.connect_timeout(CONNECT_LIMIT).keepalives(true);
            // Whatever the system's defaults are: they are hours.
            config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE).keepalives_retries(2);
            config.tcp_user_timeout(KEEPALIVE * 3);
            if config.get_application_name().is_none() {
                config.application_name("outlast");
            }
        };
        let hosts = Hosts::of(&config, prepare).map_err(wrong)?;
        let tls = Tls { wanted, connector };
        let statement_limit = STATEMENT_LIMIT;
        let lineage = Some(Lineage::new());
        Ok(Self {
            hosts,
            durable,
            tls,
            statement_limit,
            generation: None,
            lineage,
            is_recovering: false,
        })
    }

    /// Gives statements of batches no more than this time.
    pub(crate) fn with_statement_limit(self, limit: Duration) -> Self {
        Self { statement_limit: limit, ..self }
    }

    /// Longest that one statement of a batch may take.
    pub(crate) const fn statement_limit(&self) -> Duration {
        self.statement_limit
    }

    /// Writes to a store of this generation only.
    pub(crate) fn of_generation(self, generation: Generation) -> Self {
        Self { generation: Some(generation), ..self }
    }

    /// Returns what this server has acknowledged.
    pub(crate) const fn lineage(&self) -> Option<&Lineage> {
        self.lineage.as_ref()
    }

    /// Writes although something is missing, to deal with that, and although another server has done so.
    pub(crate) fn recovering(&self) -> Self {
        Self { lineage: None, is_recovering: true, ..self.clone() }
    }

    /// Returns what connections are encrypted with, if they are.
    pub(crate) fn connector(&self) -> MakeRustlsConnect {
        self.tls.connector.clone()
    }

    fn refused(&self, error: &tokio_postgres::Error, place: &str) -> OpenError {
        let (place, reason) = (place.to_owned(), words(error));
        match reason.strip_prefix("error performing TLS handshake: ") {
            Some(reason) => {
                OpenError::Tls { place, mode: self.tls.wanted.word(), reason: reason.to_owned() }
            }
            None => OpenError::Connect { place, reason },
        }
    }

    /// Returns hosts and ports, for messages.
    pub(crate) fn place(&self) -> String {
        self.hosts.place()
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<OpenConnection, OpenError> {
        self.hosts.dial(self, None).await
    }

    /// Opens a connection, and calls `heard` with each message on the channels that it listens to.
    pub(crate) async fn listener(&self, heard: OnNotice) -> Result<OpenConnection, OpenError> {
        self.hosts.dial(self, Some(heard)).await
    }

    /// Connects to one host.
    pub(crate) async fn dial(
        &self,
        config: &Config,
        place: &str,
        heard: Option<OnNotice>,
    ) -> Result<OpenConnection, OpenError> {
        if !self.hosts.is_behind_pooler() {
            // From the first statement on: a database or role may have a limit of its own.
            let given = config.get_options().unwrap_or_default();
            let options = format!("{given} -c statement_timeout={READ_LIMIT_MS}");
            let mut limited = config.clone();
            limited.options(options.trim());
            match self.dial_with(&limited, place, heard.clone()).await {
                Err(OpenError::Connect { reason, .. })
                    if config.get_options().is_none() && refuses_options(&reason) =>
                {
                    self.hosts.note_pooler();
                }
                dialed => return dialed,
            }
        }
        let link = self.dial_with(config, place, heard).await?;
        let limit = format!("set statement_timeout = {READ_LIMIT_MS}");
        let limiting = async { Ok(link.client.batch_execute(&limit).await?) };
        self.in_time(place, limiting).await.inspect_err(|_| link.reader.abort())?;
        Ok(link)
    }

    async fn dial_with(
        &self,
        config: &Config,
        place: &str,
        heard: Option<OnNotice>,
    ) -> Result<OpenConnection, OpenError> {
        let connecting = async {
            let connected = config.connect(self.connector()).await;
            connected.map_err(|error| self.refused(&error, place))
        };
        let (client, mut connection) = self.in_time(place, connecting).await?;
        let reader = tokio::spawn(async move {
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                match (message, &heard) {
                    (Ok(AsyncMessage::Notification(said)), Some(heard)) => heard(said.payload()),
                    (Ok(_), _) => {}
                    (Err(error), _) => {
                        let error = words(&error);
                        tracing::debug!(%error, "connection to PostgreSQL ended");
                        return;
                    }
                }
            }
        });
        Ok(OpenConnection { client, reader: reader.abort_handle() })
    }

    /// Opens a connection for writing.
    pub(crate) async fn writer(&self) -> Result<Connection, OpenError> {
        let connection = self.connection(&self.writer_settings()).await?;
        let checking = async {
            let client = connection.client();
            // Another host may answer at the address now; an import may have begun since the store
            // was opened, or it was restored.
            self.refuse_restored(client).await?;
            let timeline = self.refuse_replaced(client).await?;
            Self::refuse_half_imported(client).await?;
            self.refuse_raised(client).await.map(|()| timeline)
        };
        let timeline = self.in_time(&self.place(), checking).await?;
        Ok(connection.on_timeline(timeline))
    }

    /// Opens a connection for reading.
    pub(crate) async fn reader(
        &self,
        plans: Plans,
    ) -> Result<(OpenConnection, ConnectionId), OpenError> {
        let link = self.connect().await?;
        let line = self.set(&link, &Self::reader_settings(plans)).await?;
        Ok((link, line))
    }

    /// Opens a connection with these settings, for one caller.
    async fn connection(&self, settings: &str) -> Result<Connection, OpenError> {
        let link = self.connect().await?;
        let line = self.set(&link, settings).await?;
        Ok(Connection::new(link.client, link.reader, line))
    }

    /// Sets up a connection, which is given up when that fails.
    async fn set(&self, link: &OpenConnection, settings: &str) -> Result<ConnectionId, OpenError> {
        let setting = async {
            link.client.batch_execute(settings).await?;
            Ok(ConnectionId::of(&link.client).await?)
        };
        self.in_time(&self.place(), setting).await.inspect_err(|_| link.reader.abort())
    }

    /// Gives up what belongs to connecting when it takes too long.
    pub(crate) async fn in_time<T>(
        &self,
        place: &str,
        asking: impl Future<Output = Result<T, OpenError>>,
    ) -> Result<T, OpenError> {
        let asked = tokio::time::timeout(CONNECT_LIMIT, asking).await;
        let reason = format!("no answer within {} s", CONNECT_LIMIT.as_secs());
        asked.map_err(|_elapsed| OpenError::Connect { place: place.to_owned(), reason })?
    }

    /// Statements of the writer look up rows by key, one after the other: a plan that reads a
    /// whole table, or a whole index to join it, can only be a mistake about sizes that change
    /// a million-fold within minutes.
    ///
    /// No setting rules out that an index is read as a whole because of its order, which a merge
    /// join or `order by` could use. When a table was analyzed while it was empty, that looks
    /// cheapest. So statements give no index such a use: they join a table by
    /// `t.key = any(array[k.key])`, and sort rows that they found by other means by `t.key + 0`.
    ///
    /// A bitmap scan loses the order of its index. In a table that was never analyzed it looks
    /// cheapest, and a claim would read and sort all jobs that wait, to take the first few.
    pub(crate) fn writer_settings(&self) -> String {
        let limit = self.statement_limit.as_millis();
        let synchronous = if self.durable { "" } else { "set synchronous_commit = off;" };
        format!(
            "{SESSION}
             set default_transaction_read_only = off;
             select set_config('default_toast_compression', 'lz4', false) from pg_settings
             where name = 'default_toast_compression' and 'lz4' = any(enumvals);
             set plan_cache_mode = force_generic_plan; set enable_seqscan = off;
             set enable_hashjoin = off; set enable_mergejoin = off; set enable_bitmapscan = off;
             set statement_timeout = {limit}; set lock_timeout = {LOCK_LIMIT_MS};
             set idle_in_transaction_session_timeout = {IDLE_LIMIT_MS}; {synchronous}"
        )
    }

    /// Opens a connection that maintains history. It waits only a moment for a lock, since others wait
    /// behind it.
    pub(crate) async fn maintenance(&self) -> Result<Connection, OpenError> {
        let settings = format!(
            "{SESSION}
             set default_transaction_read_only = off; set synchronous_commit = off;
             set statement_timeout = {MAINTAIN_LIMIT_MS}; set lock_timeout = {MAINTAIN_LOCK_LIMIT_MS};
             set idle_in_transaction_session_timeout = {IDLE_LIMIT_MS}"
        );
        self.connection(&settings).await
    }

    /// Returns the settings of connections that read.
    pub(crate) fn reader_settings(plans: Plans) -> String {
        let plans = match plans {
            Plans::ForValues => "set plan_cache_mode = force_custom_plan;",
            // For the reasons that a writer has.
            Plans::Kept => {
                "set plan_cache_mode = force_generic_plan; set enable_seqscan = off;
                 set enable_hashjoin = off; set enable_mergejoin = off; set enable_bitmapscan = off;"
            }
        };
        format!(
            "{SESSION}
             set default_transaction_read_only = on; set statement_timeout = {READ_LIMIT_MS};
             {plans}
             set lock_timeout = {READ_LOCK_LIMIT_MS};
             set idle_in_transaction_session_timeout = {IDLE_LIMIT_MS}"
        )
    }

    /// Checks version and durability, and brings the schema up to date.
    pub(crate) async fn open(&self) -> Result<Opened, OpenError> {
        let link = self.connect().await?;
        self.refuse_transaction_pooling(&link).await?;
        let OpenConnection { mut client, reader } = link;
        self.check(&client).await?;
        self.refuse_standby(&client).await?;
        client
            .batch_execute(&format!(
                "{SESSION} set default_transaction_read_only = off; set statement_timeout = 0"
            ))
            .await?;
        let migrated = migrate::migrate(&mut client).await?;
        Ok(Opened { client, reader, migrated })
    }

    /// Refuses a pooler that lends the same session of PostgreSQL to several clients in turn, as
    /// PgBouncer does with `pool_mode=transaction`. Settings, prepared statements and `LISTEN`, which
    /// belong to a session, would reach others and get lost.
    ///
    /// A mark that is made in one session must be seen in that session, and in no other. Nothing is
    /// prepared for that: it would fail in less clear words.
    async fn refuse_transaction_pooling(&self, link: &OpenConnection) -> Result<(), OpenError> {
        let mark = Uuid::now_v7().to_string();
        link.client
            .batch_execute(&format!("select set_config('outlast.session', '{mark}', false)"))
            .await?;
        let other = self.connect().await?;
        for _ in 0..POOLING_ROUNDS {
            if mark_of(&other).await? == mark || mark_of(link).await? != mark {
                return Err(OpenError::TransactionPooling { place: self.place() });
            }
        }
        Ok(())
    }

    /// Refuses what only follows a primary.
    async fn refuse_standby(&self, client: &Client) -> Result<u32, OpenError> {
        let place = self.place();
        match Role::of(client).await? {
            Role::Standby => Err(OpenError::ReadOnly { place }),
            Role::Primary(timeline) => {
                self.hosts.note_timeline(timeline, &place).map(|()| timeline)
            }
        }
    }

    /// Refuses a primary that took the place of another one, until it is known what it lacks.
    async fn refuse_replaced(&self, client: &Client) -> Result<u32, OpenError> {
        let timeline = self.refuse_standby(client).await?;
        let Some(lineage) = self.lineage.as_ref().filter(|it| !it.is_settled(timeline)) else {
            return Ok(timeline);
        };
        match lineage.look(client, timeline).await? {
            Found::Settled => Ok(timeline),
            Found::Others(words) => Err(OpenError::FailedOver(words)),
            Found::Loss => {
                let words = "a standby took the primary's place and lacks acknowledged commits: \
                             finding out which";
                Err(OpenError::FailedOver(words.into()))
            }
        }
    }

    /// Refuses a store into which an import was begun and not finished.
    pub(crate) async fn refuse_half_imported(client: &Client) -> Result<(), OpenError> {
        let half = client.query_opt("select 1 from transfer where not done", &[]).await?;
        half.map_or(Ok(()), |_| Err(OpenError::HalfImported))
    }

    /// Refuses a store that was restored since it was opened: what this server remembers, and
    /// what it gave to workers, is of the store that was lost.
    async fn refuse_restored(&self, client: &Client) -> Result<(), OpenError> {
        let Some(known) = self.generation else { return Ok(()) };
        let found = generation(client).await?;
        if found.restored == known.restored { Ok(()) } else { Err(self.restored(known, found)) }
    }

    /// Refuses a store that has lost commits since it was opened, which another server dealt with.
    async fn refuse_raised(&self, client: &Client) -> Result<(), OpenError> {
        let Some(known) = self.generation.filter(|_| !self.is_recovering) else { return Ok(()) };
        let found = generation(client).await?;
        if found == known { Ok(()) } else { Err(self.restored(known, found)) }
    }

    fn restored(&self, known: Generation, found: Generation) -> OpenError {
        let (known, found) = (known.number, found.number);
        OpenError::Restored { place: self.place(), known, found }
    }

    /// Returns the hosts.
    pub(crate) const fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Returns the highest timeline that a primary was found on.
    pub(crate) fn timeline(&self) -> u32 {
        self.hosts.timeline()
    }

    /// Tells which migrations opening would run, and changes nothing.
    pub(crate) async fn look(&self) -> Result<SchemaStatus, OpenError> {
        let OpenConnection { client, .. } = self.connect().await?;
        self.check(&client).await?;
        client.batch_execute(&Self::reader_settings(Plans::ForValues)).await?;
        migrate::look(&client).await
    }

    /// Checks version, encoding and durability.
    async fn check(&self, client: &Client) -> Result<(), OpenError> {
        let row = client
            .query_one(
                "select current_setting('server_version'),
                        current_setting('server_version_num')::int,
                        current_setting('fsync'), current_setting('synchronous_commit'),
                        current_setting('full_page_writes'),
                        current_setting('server_encoding')",
                &[],
            )
            .await?;
        if row.try_get::<_, i32>(1)? < 150_000 {
            return Err(OpenError::TooOld { found: row.try_get(0)? });
        }
        let encoding: &str = row.try_get(5)?;
        if encoding != ENCODING {
            return Err(OpenError::Encoding { found: encoding.to_owned() });
        }
        for (at, setting) in [(2, "fsync"), (3, "synchronous_commit"), (4, "full_page_writes")] {
            if self.durable && row.try_get::<_, &str>(at)? == "off" {
                return Err(OpenError::NotDurable { setting: setting.to_owned() });
            }
        }
        Ok(())
    }
}

/// Opens a plain connection, encrypted as a store's would be, without the settings of a store's
/// sessions. Returns it with a handle of the task that reads from it.
///
/// # Errors
/// When the address is wrong, or PostgreSQL cannot be reached.
pub async fn connect(url: &str) -> Result<(Client, AbortHandle), OpenError> {
    let OpenConnection { client, reader } = Address::parse(url, true)?.connect().await?;
    Ok((client, reader))
}

/// Whether a pooler refuses what libpq calls options. PgBouncer does unless it is set to ignore them.
fn refuses_options(reason: &str) -> bool {
    reason.contains("unsupported startup parameter") && reason.contains("options")
}

/// Returns the mark of the session that answers.
async fn mark_of(link: &OpenConnection) -> Result<String, OpenError> {
    let asking = "select current_setting('outlast.session', true)";
    let answer = link.client.simple_query(asking).await?;
    let mark = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(mark.unwrap_or_default().to_owned())
}

/// Returns the store's generation.
pub(crate) async fn generation(client: &Client) -> Result<Generation, OpenError> {
    let sql = "select max(number), max(restored) from outlast.generation";
    let row = client.query_one(sql, &[]).await?;
    let number = |at| -> Result<u64, OpenError> {
        Ok(row.try_get::<_, Option<i64>>(at)?.and_then(|it| u64::try_from(it).ok()).unwrap_or(1))
    };
    Ok(Generation { number: number(0)?, restored: number(1)? })
}

/// Returns the latest time that is known to have been acted at. Servers that run go on from it when
/// PostgreSQL's clock is set back, so one that starts later must not begin before it.
pub(crate) async fn latest_time(client: &Client) -> Result<Timestamp, OpenError> {
    let sql = "select greatest((select max(at) from outlast.event_batch),
        (select max(at) from outlast.server_batch), (select max(at) from outlast.batch_slot),
        (select max(last_heartbeat_ms) from public.worker where liveness < 2))";
    let latest: Option<i64> = client.query_one(sql, &[]).await?.try_get(0)?;
    Ok(Timestamp(latest.unwrap_or(i64::MIN)))
}

/// Returns an address that may be shown.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    match rest.rsplit_once('@') {
        Some((user, place)) => {
            let user = user.split_once(':').map_or(user, |(user, _)| user);
            format!("{scheme}://{user}@{place}")
        }
        None => url.to_owned(),
    }
}
