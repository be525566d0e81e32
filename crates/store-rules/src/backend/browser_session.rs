//! Beginning, renewing and ending sessions of browsers.

use outlast_core::time::Timestamp;
use outlast_store::browser_session::{
    BeginSession, BrowserSession, EndSessions, RenewSession, WhichSessions,
};
use outlast_store::event::EventName;
use uuid::Uuid;

use super::{Backend, Transaction};
use crate::rules::{begun_session, session_event};

/// Sessions of browsers.
#[expect(
    async_fn_in_trait,
    reason = "an embedded database has no futures that other threads could run"
)]
pub trait SessionTables: Transaction {
    /// Stores a session, unless it is stored already. Deletes those of the same token that were unused
    /// for longest, as far as there are more than [`SESSIONS_OF_TOKEN_MAX`], and returns them.
    ///
    /// [`SESSIONS_OF_TOKEN_MAX`]: outlast_core::limits::SESSIONS_OF_TOKEN_MAX
    async fn insert_session(
        &mut self,
        session: &BrowserSession,
    ) -> Result<Vec<BrowserSession>, Self::Error>;

    /// Notes that a session is used at this time, if it has not expired by then.
    fn renew_session(&mut self, id: Uuid, now: Timestamp) -> Result<(), Self::Error>;

    /// Deletes sessions and returns them.
    async fn delete_sessions(
        &mut self,
        which: &WhichSessions,
    ) -> Result<Vec<BrowserSession>, Self::Error>;
}

pub(super) async fn begin<B: Backend>(
    b: &mut B,
    order: &BeginSession,
) -> Result<BrowserSession, B::Error> {
    let now = b.context().now;
    let session = begun_session(order, now);
    let ended = b.insert_session(&session).await?;
    note_ended(b, ended, &order.by);
    let event = session_event(&session, EventName::SessionBegan, now, &order.by);
    b.outbox().events.push(event);
    Ok(session)
}

pub(super) fn renew<B: Backend>(b: &mut B, order: RenewSession) -> Result<(), B::Error> {
    let now = b.context().now;
    b.renew_session(order.id, now)
}

pub(super) async fn end<B: Backend>(
    b: &mut B,
    order: &EndSessions,
) -> Result<Vec<BrowserSession>, B::Error> {
    let ended = b.delete_sessions(&order.which).await?;
    Ok(note_ended(b, ended, &order.by))
}

/// Logs the end of sessions, by id; returns them in that order.
fn note_ended<B: Backend>(
    b: &mut B,
    mut ended: Vec<BrowserSession>,
    by: &str,
) -> Vec<BrowserSession> {
    let now = b.context().now;
    ended.sort_unstable_by_key(|session| session.id);
    let events =
        ended.iter().map(|session| session_event(session, EventName::SessionEnded, now, by));
    b.outbox().events.extend(events);
    ended
}
