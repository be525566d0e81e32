//! Sessions of browsers.

use outlast_core::limits::{SESSION_IDLE_MAX, SESSION_LIFE_MAX, SESSIONS_OF_TOKEN_MAX};
use outlast_core::time::Timestamp;
use outlast_store::browser_session::{BrowserSession, WhichSessions};
use outlast_store::{StoreError, browser_session_columns};
use uuid::Uuid;

use crate::read::browser_session::all;
use crate::row::int;
use crate::writer::Tx;

impl Tx<'_> {
    pub(super) fn put_session(
        &self,
        session: &BrowserSession,
    ) -> Result<Vec<BrowserSession>, StoreError> {
        self.execute(
            "insert or ignore into browser_session
                 (id, secret, token, name, address, agent, created, used, expires)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                session.id.as_bytes().as_slice(),
                session.secret.as_slice(),
                session.token.as_slice(),
                &session.name,
                &session.address,
                &session.agent,
                session.created.0,
                session.used.0,
                session.expires.0,
            ),
        )?;
        let sql = concat!(
            "delete from browser_session where id in (
                 select id from browser_session where token = ?1 and id <> ?2
                 order by used desc, id desc limit -1 offset ?3)
             returning ",
            browser_session_columns!()
        );
        let (token, id) = (session.token.as_slice(), session.id.as_bytes().as_slice());
        let kept = i64::try_from(SESSIONS_OF_TOKEN_MAX - 1).unwrap_or(i64::MAX);
        all(self.db, sql, (token, id, kept))
    }

    pub(super) fn use_session(&self, id: Uuid, now: Timestamp) -> Result<(), StoreError> {
        self.execute(
            "update browser_session set used = ?2, expires = min(created + ?3, ?2 + ?4)
             where id = ?1 and expires > ?2",
            (id.as_bytes().as_slice(), now.0, int(SESSION_LIFE_MAX.0), int(SESSION_IDLE_MAX.0)),
        )?;
        Ok(())
    }

    pub(super) fn take_sessions(
        &self,
        which: &WhichSessions,
    ) -> Result<Vec<BrowserSession>, StoreError> {
        match which {
            WhichSessions::One(id, token) => {
                let sql = concat!(
                    "delete from browser_session where id = ?1 and (?2 is null or token = ?2)
                     returning ",
                    browser_session_columns!()
                );
                let token = token.as_ref().map(<[u8; 32]>::as_slice);
                all(self.db, sql, (id.as_bytes().as_slice(), token))
            }
            WhichSessions::OfTokens(tokens) => {
                let sql = concat!(
                    "delete from browser_session where token = ? returning ",
                    browser_session_columns!()
                );
                let mut gone = Vec::new();
                for token in tokens {
                    gone.append(&mut all(self.db, sql, [token.as_slice()])?);
                }
                Ok(gone)
            }
        }
    }

    /// Deletes sessions that have expired, the earliest first; returns how many.
    pub(super) fn prune_sessions(&self, limit: i64) -> Result<usize, StoreError> {
        self.execute(
            "delete from browser_session where id in (
                 select id from browser_session where expires <= ? order by expires, id limit ?)",
            (self.batch.context.now.0, limit),
        )
    }
}
