//! The hosts of one store: a primary, and standbys that may become it.
//!
//! ```text
//! ask all hosts at once, for all who wait to connect: the primary with the highest timeline
//!    │
//!    ▼
//! ask that host ──primary──▶ take it
//!    │ it fails, or says nothing for a moment
//!    ▼
//! ask all others at once ──the first that is a primary──▶ take it
//!    │ none is
//!    ▼
//! error that says what each of them said
//! ```
//!
//! A primary that was replaced may run on, and answer as before. Its timeline is lower than that of the
//! new one, so a server that has seen the new one takes it no more, and trusts no connection that it
//! opened before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, SimpleQueryMessage};

use crate::connect::{Address, OnNotice, OpenConnection};
use crate::error::OpenError;
use crate::tls::take_settings;

/// How long a host is waited for while others may answer.
const MOMENT: Duration = Duration::from_millis(500);

/// Asks a host whether it follows a primary, and for its timeline if it does not.
const ROLE: &str = "select pg_is_in_recovery(), case when pg_is_in_recovery() then null
    else left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) end";

/// Where a store is. Clones share what was found out.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    /// How each host is reached.
    all: Arc<[Config]>,
    found: Arc<Found>,
}

/// What was found out about the hosts.
#[derive(Debug, Default)]
struct Found {
    /// Which host was last found to be the primary.
    latest: AtomicUsize,
    /// The highest timeline that a primary was on; 0 if none was asked.
    timeline: AtomicU32,
    /// When all were last asked. A caller that came before waits for what they say.
    asked: Mutex<Option<Instant>>,
    /// Connections that were opened before this are not trusted.
    distrusted: watch::Sender<Option<Instant>>,
    /// Whether a pooler is in between that refuses settings at the start of a session.
    is_behind_pooler: AtomicBool,
}

/// A connection to a primary, and its timeline; 0 where there is only one host.
struct Dialed {
    link: OpenConnection,
    timeline: u32,
}

/// What a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It follows a primary.
    Standby,
    /// It takes writes, on this timeline.
    Primary(u32),
}

impl Role {
    /// Asks for it. Nothing is prepared for that, so a pooler does no harm.
    pub(crate) async fn of(client: &Client) -> Result<Self, OpenError> {
        let answer = client.simple_query(ROLE).await?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let timeline = row.and_then(|row| row.get(1));
        Ok(match timeline.and_then(|hex| u32::from_str_radix(hex, 16).ok()) {
            Some(timeline) => Self::Primary(timeline),
            None => Self::Standby,
        })
    }
}

/// Takes `target_session_attrs` out of an address: the driver does not know all of its values.
pub(crate) fn take_session_attrs(url: &str) -> Result<String, String> {
    take_settings(url, |name, value| match (name, value) {
        ("target_session_attrs", "any" | "read-write" | "primary") => Ok(true),
        ("target_session_attrs", other) => Err(format!(
            "target_session_attrs={other} does not fit: a server writes, so it is `primary` or \
             `read-write`, which is also what is done without it"
        )),
        _ => Ok(false),
    })
}

/// Returns how each of the hosts of an address is reached.
fn each(config: &Config) -> Result<Vec<Config>, String> {
    let (hosts, addresses, ports) =
        (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    if ports.len() > 1 && ports.len() != count {
        return Err(format!("it names {count} hosts and {} ports", ports.len()));
    }
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        let (hosts, addresses) = (hosts.len(), addresses.len());
        return Err(format!("it names {hosts} hosts and {addresses} addresses of hosts"));
    }
    Ok((0..count)
        .map(|at| {
            let mut one = without_hosts(config);
            match hosts.get(at) {
                Some(Host::Tcp(name)) => drop(one.host(name)),
                Some(Host::Unix(path)) => drop(one.host_path(path)),
                None => {}
            }
            if let Some(address) = addresses.get(at) {
                one.hostaddr(*address);
            }
            one.port(ports.get(at).or_else(|| ports.first()).copied().unwrap_or(5432));
            one
        })
        .collect())
}

fn without_hosts(config: &Config) -> Config {
    let mut one = Config::new();
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(name) = config.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    one.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding());
    one
}

impl Hosts {
    /// Takes the hosts out of an address, each with the other settings in it.
    pub(crate) fn of(config: &Config, prepare: impl Fn(&mut Config)) -> Result<Self, String> {
        let mut all = each(config)?;
        all.iter_mut().for_each(prepare);
        Ok(Self { all: all.into(), found: Arc::default() })
    }

    /// Returns hosts and ports, for messages.
    pub(crate) fn place(&self) -> String {
        self.all.iter().map(place_of).collect::<Vec<_>>().join(",")
    }

    /// Whether there is more than one, so that a standby is no error.
    fn is_choice(&self) -> bool {
        self.all.len() > 1
    }

    /// Returns the highest timeline that a primary was on; 0 if none was asked.
    pub(crate) fn timeline(&self) -> u32 {
        self.found.timeline.load(Ordering::Acquire)
    }

    /// Notes which timeline a primary is on; refuses one that was replaced. Where there is only one
    /// host, a lower timeline is that of a cluster which was made again, as by `pg_upgrade`.
    pub(crate) fn note_timeline(&self, timeline: u32, place: &str) -> Result<(), OpenError> {
        if !self.is_choice() {
            self.found.timeline.store(timeline, Ordering::Release);
            return Ok(());
        }
        let known = self.found.timeline.fetch_max(timeline, Ordering::AcqRel);
        if timeline < known {
            return Err(OpenError::Replaced { place: place.to_owned(), timeline, known });
        }
        if timeline > known && known > 0 {
            self.distrust_open();
        }
        Ok(())
    }

    /// Trusts no connection any more that is open now; returns since when none was trusted before.
    pub(crate) fn distrust_open(&self) -> Option<Instant> {
        self.found.distrusted.send_replace(Some(Instant::now()))
    }

    /// Tells since when connections are trusted.
    pub(crate) fn distrusted(&self) -> watch::Receiver<Option<Instant>> {
        self.found.distrusted.subscribe()
    }

    /// Whether a pooler refuses settings at the start of a session.
    pub(crate) fn is_behind_pooler(&self) -> bool {
        self.found.is_behind_pooler.load(Ordering::Acquire)
    }

    pub(crate) fn note_pooler(&self) {
        self.found.is_behind_pooler.store(true, Ordering::Release);
    }

    /// Opens a connection: to the only host, or to the first that turns out to be the primary.
    pub(crate) async fn dial(
        &self,
        address: &Address,
        heard: Option<OnNotice>,
    ) -> Result<OpenConnection, OpenError> {
        if self.is_choice() {
            let came = Instant::now();
            let mut asked = self.found.asked.lock().await;
            if asked.is_none_or(|began| began < came) {
                *asked = Some(Instant::now());
                self.query_all(address).await;
            }
        }
        let latest = self.found.latest.load(Ordering::Acquire).min(self.all.len() - 1);
        let mut others: Vec<usize> = (0..self.all.len()).filter(|at| *at != latest).collect();
        let mut asking = FuturesUnordered::new();
        asking.push(Box::pin(self.dial_one(address, latest, heard.clone())));
        let mut failures = Vec::new();
        loop {
            let answer = tokio::select! {
                biased;
                answer = asking.next() => answer,
                () = tokio::time::sleep(MOMENT), if !others.is_empty() => None,
            };
            match answer {
                Some((at, Ok(dialed))) => {
                    self.found.latest.store(at, Ordering::Release);
                    return Ok(dialed.link);
                }
                Some((at, Err(error))) => failures.push((at, error)),
                None => {}
            }
            for at in others.drain(..) {
                asking.push(Box::pin(self.dial_one(address, at, heard.clone())));
            }
            if asking.is_empty() {
                return Err(self.no_primary(failures));
            }
        }
    }

    /// Asks all hosts, and remembers the primary with the highest timeline: one that was replaced may be
    /// among them.
    async fn query_all(&self, address: &Address) {
        let all = (0..self.all.len()).map(|at| Box::pin(self.dial_one(address, at, None)));
        let mut asking: FuturesUnordered<_> = all.collect();
        let mut best = None;
        let mut end = None;
        loop {
            let answer = tokio::select! {
                answer = asking.next() => answer,
                () = wait_until(end) => None,
            };
            let Some((at, answer)) = answer else { break };
            if let Ok(Dialed { link, timeline }) = answer {
                link.reader.abort();
                best = best.max(Some((timeline, at)));
                end.get_or_insert_with(|| Instant::now() + MOMENT);
            }
        }
        if let Some((_, at)) = best {
            self.found.latest.store(at, Ordering::Release);
        }
    }

    async fn dial_one(
        &self,
        address: &Address,
        at: usize,
        heard: Option<OnNotice>,
    ) -> (usize, Result<Dialed, OpenError>) {
        let Some(config) = self.all.get(at) else {
            return (at, Err(OpenError::Refused("no such host".into())));
        };
        let link = address.dial(config, &place_of(config), heard).await;
        let dialed = match link {
            Ok(link) if self.is_choice() => self.primary_only(address, config, link).await,
            link => link.map(|link| Dialed { link, timeline: 0 }),
        };
        (at, dialed)
    }

    /// Refuses a host that follows another one, or that was replaced.
    async fn primary_only(
        &self,
        address: &Address,
        config: &Config,
        link: OpenConnection,
    ) -> Result<Dialed, OpenError> {
        let place = place_of(config);
        let timeline = match address.in_time(&place, Role::of(&link.client)).await {
            Ok(Role::Primary(timeline)) => self.note_timeline(timeline, &place).map(|()| timeline),
            Ok(Role::Standby) => Err(OpenError::ReadOnly { place }),
            Err(error) => Err(error),
        };
        let timeline = timeline.inspect_err(|_| link.reader.abort())?;
        Ok(Dialed { link, timeline })
    }

    /// Returns what the hosts said, of which none can be used.
    fn no_primary(&self, mut failures: Vec<(usize, OpenError)>) -> OpenError {
        if !self.is_choice()
            && let Some((_, error)) = failures.pop()
        {
            return error;
        }
        failures.sort_by_key(|(at, _)| *at);
        let has_standby =
            failures.iter().any(|(_, error)| matches!(error, OpenError::ReadOnly { .. }));
        let said: Vec<String> = failures.iter().map(|(_, error)| error.to_string()).collect();
        OpenError::NoPrimary { place: self.place(), said: said.join("; "), has_standby }
    }
}

async fn wait_until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// Returns host and port, for messages.
fn place_of(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => {
            config.get_hostaddrs().first().map_or_else(|| "localhost".into(), ToString::to_string)
        }
    };
    format!("{host}:{}", config.get_ports().first().copied().unwrap_or(5432))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(url: &str) -> Result<Hosts, String> {
        Hosts::of(&url.parse().unwrap(), |_| {})
    }

    #[test]
    fn each_host_has_its_own_port_or_the_only_one() {
        let place = |url| hosts(url).map(|hosts| hosts.place());
        assert_eq!(place("postgres://me@a:1,b:2/jobs"), Ok("a:1,b:2".to_owned()));
        assert_eq!(place("postgres://me@a,b/jobs"), Ok("a:5432,b:5432".to_owned()));
        assert_eq!(place("host=a,b,c port=7 dbname=jobs"), Ok("a:7,b:7,c:7".to_owned()));
        let error = place("host=a,b,c port=7,8 dbname=jobs").unwrap_err();
        assert_eq!(error, "it names 3 hosts and 2 ports");
    }

    #[test]
    fn settings_of_an_address_hold_for_each_of_its_hosts() {
        let hosts =
            hosts("postgres://me:secret@a:1,b:2/jobs?application_name=x&options=-c%20a%3Db")
                .unwrap();
        for config in hosts.all.iter() {
            assert_eq!(config.get_user(), Some("me"));
            assert_eq!(config.get_password(), Some(b"secret".as_slice()));
            assert_eq!(config.get_dbname(), Some("jobs"));
            assert_eq!(config.get_application_name(), Some("x"));
            assert_eq!(config.get_options(), Some("-c a=b"));
        }
    }

    #[test]
    fn only_what_writes_can_be_asked_for() {
        let take = |query: &str| take_session_attrs(&format!("postgres://me@a,b/jobs{query}"));
        let plain = Ok("postgres://me@a,b/jobs".to_owned());
        for fits in ["", "?target_session_attrs=primary", "?target_session_attrs=read-write"] {
            assert_eq!(take(fits), plain, "{fits}");
        }
        let rest = take("?application_name=x&target_session_attrs=any&connect_timeout=3");
        assert_eq!(
            rest,
            Ok("postgres://me@a,b/jobs?application_name=x&connect_timeout=3".to_owned())
        );
        for other in ["standby", "read-only", "prefer-standby", ""] {
            let error = take(&format!("?target_session_attrs={other}")).unwrap_err();
            assert!(error.contains(&format!("={other} ")) && error.contains("primary"), "{error}");
        }
    }

    #[test]
    fn primary_that_was_replaced_is_refused_once_the_new_one_was_seen() {
        let hosts = hosts("postgres://me@a:1,b:2/jobs").unwrap();
        assert!(hosts.note_timeline(3, "a:1").is_ok());
        assert!(hosts.note_timeline(4, "b:2").is_ok());
        let error = hosts.note_timeline(3, "a:1").unwrap_err().to_string();
        assert!(error.contains("a:1") && error.contains('3') && error.contains('4'), "{error}");
        let one = self::hosts("postgres://me@a:1/jobs").unwrap();
        assert!(one.note_timeline(3, "a:1").is_ok() && one.note_timeline(1, "a:1").is_ok());
        assert!(hosts.note_timeline(4, "b:2").is_ok());
    }
}
