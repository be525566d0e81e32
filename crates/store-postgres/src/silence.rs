//! Connections that are open and no longer answer.
//!
//! After a failover behind a load balancer, or behind a network that forgot them, old connections
//! say nothing for minutes while new ones work. A slow statement looks the same from here. So after
//! a moment PostgreSQL is asked, on a new connection, what it does for the old one:
//!
//! ```text
//! waiting ──answer──▶ done
//!    │ a moment passes
//!    ▼
//! is it at work for us? ──yes, or unknown──▶ go on waiting, up to the limit
//!    │ it does nothing for us, twice, or has none
//!    ▼
//! silent: this connection is thrown away, and so is every one that was opened before now when it
//! is next used; who waits on one of them asks at once
//! ```
//!
//! Those that lead to a primary which was replaced are thrown away as well: see [`crate::hosts`].

use std::pin::pin;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::connect::{Address, OpenConnection};

/// How long an answer may take before PostgreSQL is asked about it, and between two such questions.
const MOMENT: Duration = Duration::from_secs(3);
/// Longest that such a question may take.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// How long it must do nothing for a connection while we wait: an answer may be on its way, or the
/// next question.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

/// Asks who we are for PostgreSQL.
const IDENTITY: &str = "select pid, (extract(epoch from backend_start) * 1000000)::bigint
    from pg_stat_activity where pid = pg_backend_pid()";
/// Asks what it does for someone.
const LOOK: &str = "select coalesce(state, ''),
        coalesce((extract(epoch from state_change) * 1000000)::bigint, 0)
    from pg_stat_activity where pid = $1 and (extract(epoch from backend_start) * 1000000)::bigint = $2";

/// One connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionId {
    opened: Instant,
    /// Number and start of the process that serves it.
    backend: (i32, i64),
}

impl ConnectionId {
    /// Identifies a connection that was just opened.
    pub(crate) async fn of(client: &Client) -> Result<Self, tokio_postgres::Error> {
        // Before it is asked: it may be silent already when others find that.
        let opened = Instant::now();
        let row = client.query_one(IDENTITY, &[]).await?;
        Ok(Self { opened, backend: (row.try_get(0)?, row.try_get(1)?) })
    }

    /// Returns the number of the process that serves it.
    pub(crate) const fn pid(self) -> i32 {
        self.backend.0
    }
}

/// PostgreSQL's side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Busy,
    /// It waits for us, since then.
    Idle(i64),
    /// The connection has ended for it.
    Gone,
    Unknown,
}

/// Which connections of a store are not trusted.
#[derive(Debug)]
pub(crate) struct Silence {
    address: Address,
    /// One question at a time: each needs a connection.
    turn: Mutex<()>,
}

impl Silence {
    pub(crate) fn new(address: Address) -> Self {
        Self { address, turn: Mutex::new(()) }
    }

    /// Whether another one was found silent since this one was opened, or a new primary was found.
    pub(crate) fn distrusts(&self, line: ConnectionId) -> bool {
        self.watch().borrow().is_some_and(|found| line.opened < found)
    }

    /// Returns what tells when a connection was found silent, or a new primary was found.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Instant>> {
        self.address.hosts().distrusted()
    }

    /// Waits for an answer on a connection; `None` if there was none within `limit`, or if the
    /// connection is silent. It must not be used again then.
    pub(crate) async fn answer<T>(
        &self,
        line: ConnectionId,
        limit: Duration,
        asking: impl Future<Output = T>,
    ) -> Option<T> {
        let mut asking = pin!(asking);
        let mut found = self.watch();
        let end = Instant::now() + limit;
        while Instant::now() < end {
            tokio::select! {
                biased;
                answer = &mut asking => return Some(answer),
                () = tokio::time::sleep_until((Instant::now() + MOMENT).min(end)) => {}
                Ok(()) = found.changed() => {}
            }
            if Instant::now() >= end {
                break;
            }
            let looked = tokio::select! {
                biased;
                answer = &mut asking => return Some(answer),
                looked = self.look(line) => looked,
                () = tokio::time::sleep_until(end) => Found::Unknown,
            };
            if matches!(looked, Found::Busy | Found::Unknown) {
                continue;
            }
            let again = async {
                tokio::time::sleep(ON_ITS_WAY).await;
                self.look(line).await
            };
            let again = tokio::select! {
                biased;
                answer = &mut asking => return Some(answer),
                again = again => again,
            };
            if again == looked {
                self.distrust();
                return None;
            }
        }
        None
    }

    /// Returns where connections lead.
    pub(crate) const fn address(&self) -> &Address {
        &self.address
    }

    /// Distrusts every connection that is open now.
    fn distrust(&self) {
        let before = self.address.hosts().distrust_open();
        // Those that were opened before are found one after the other.
        if before.is_none_or(|before| before.elapsed() > LOOK_LIMIT) {
            tracing::warn!(
                place = self.address.place(),
                "PostgreSQL no longer answers on a connection that is open; opening new ones"
            );
        }
    }

    async fn look(&self, line: ConnectionId) -> Found {
        let looking = async {
            let _turn = self.turn.lock().await;
            let OpenConnection { client, reader } = self.address.connect().await.ok()?;
            let (pid, start) = line.backend;
            let row = client.query_opt(LOOK, &[&pid, &start]).await;
            reader.abort();
            Some(match row.ok()? {
                Some(row) => of_state(row.try_get(0).ok()?, row.try_get(1).ok()?),
                None => Found::Gone,
            })
        };
        let looked = tokio::time::timeout(LOOK_LIMIT, looking).await;
        looked.ok().flatten().unwrap_or(Found::Unknown)
    }
}

fn of_state(state: &str, since: i64) -> Found {
    match state {
        "idle" | "idle in transaction" | "idle in transaction (aborted)" => Found::Idle(since),
        "active" | "fastpath function call" => Found::Busy,
        // It may not be seen, or is not tracked.
        _ => Found::Unknown,
    }
}
