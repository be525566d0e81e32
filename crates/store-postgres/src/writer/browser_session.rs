//! Sessions of browsers. Those that are ended are locked in the order of their ids, so that two batches do
//! not wait for each other. A renewal does not wait: the next one comes soon.

use outlast_core::limits::{SESSION_IDLE_MAX, SESSION_LIFE_MAX, SESSIONS_OF_TOKEN_MAX};
use outlast_core::time::Timestamp;
use outlast_store::browser_session::{BrowserSession, WhichSessions};
use outlast_store::browser_session_columns;
use uuid::Uuid;

use crate::connection::values;
use crate::failure::Failure;
use crate::read::browser_session::record_of;
use crate::row::{int, text};
use crate::writer::Tx;

const EXCESS: &str = concat!(
    "delete from browser_session where id = any(array(
         select id from browser_session where id = any(array(
             select id from browser_session where token = $1 and id <> $2
             order by used desc, id desc offset $3))
         order by id for update))
     returning ",
    browser_session_columns!()
);

const ONE: &str = concat!(
    "delete from browser_session where id = $1 and ($2::bytea is null or token = $2) returning ",
    browser_session_columns!()
);

const OF_TOKENS: &str = concat!(
    "delete from browser_session where id = any(array(
         select id from browser_session where token = any($1::bytea[]) order by id for update))
     returning ",
    browser_session_columns!()
);

const EXPIRED: &str = "delete from browser_session where id = any(array(
         select id from browser_session where expires <= $1 order by expires, id limit $2
         for update skip locked))
     returning 1";

impl Tx<'_> {
    pub(super) async fn put_session(
        &mut self,
        session: &BrowserSession,
    ) -> Result<Vec<BrowserSession>, Failure> {
        self.write(
            "insert into browser_session
                 (id, secret, token, name, address, agent, created, used, expires)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict do nothing",
            values![
                session.id,
                session.secret.to_vec(),
                session.token.to_vec(),
                text(&session.name),
                text(&session.address),
                text(&session.agent),
                session.created.0,
                session.used.0,
                session.expires.0,
            ],
        );
        let kept = i64::try_from(SESSIONS_OF_TOKEN_MAX - 1).unwrap_or(i64::MAX);
        let values = values![session.token.to_vec(), session.id, kept];
        let rows = self.query(EXCESS, values).await?;
        Ok(rows.iter().map(record_of).collect::<Result<_, _>>()?)
    }

    pub(super) fn use_session(&mut self, id: Uuid, now: Timestamp) {
        self.write(
            "update browser_session set used = $2::bigint, expires = least(created + $3::bigint, $2::bigint + $4::bigint)
             where id = any(array(select id from browser_session where id = $1 and expires > $2::bigint
                                  for update skip locked))",
            values![id, now.0, int(SESSION_LIFE_MAX.0), int(SESSION_IDLE_MAX.0)],
        );
    }

    pub(super) async fn take_sessions(
        &mut self,
        which: &WhichSessions,
    ) -> Result<Vec<BrowserSession>, Failure> {
        let rows = match which {
            WhichSessions::One(id, token) => {
                self.query(ONE, values![*id, token.map(|token| token.to_vec())]).await?
            }
            WhichSessions::OfTokens(tokens) => {
                let tokens: Vec<Vec<u8>> = tokens.iter().map(|token| token.to_vec()).collect();
                self.query(OF_TOKENS, values![tokens]).await?
            }
        };
        Ok(rows.iter().map(record_of).collect::<Result<_, _>>()?)
    }

    /// Deletes sessions that have expired, the earliest first; returns how many.
    pub(super) async fn prune_sessions(&mut self, limit: i64) -> Result<usize, Failure> {
        Ok(self.query(EXPIRED, values![self.batch.context.now.0, limit]).await?.len())
    }
}
