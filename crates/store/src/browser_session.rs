//! Sessions of browsers, as a store keeps them.
//!
//! A browser shows a secret with each request, and the store has only its hash. A session is of one
//! token: the server looks that up for each request, so the session allows what the token allows now,
//! and nothing once the token is gone.
//!
//! ```text
//! begun ──used──▶ expires later, but never after its longest life ──▶ expired: deleted in time
//!   └─ended: deleted
//! ```

use outlast_core::limits::{SESSION_IDLE_MAX, SESSION_LIFE_MAX};
use outlast_core::time::Timestamp;
use uuid::Uuid;

use crate::idempotency::Fingerprint;
use crate::request::{boxed_requests, requests, unit_requests};

/// A session as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowserSession {
    /// What it is called. Who knows it can end the session, but not use it.
    pub id: Uuid,
    /// The hash of its secret.
    pub secret: Fingerprint,
    /// What its token is known by; another token of the same name has another one.
    pub token: Fingerprint,
    /// The name of the token when the session began.
    pub name: String,
    /// The address that it began from.
    pub address: String,
    /// The browser, as it calls itself.
    pub agent: String,
    /// When it began.
    pub created: Timestamp,
    /// When it was used last, within a minute.
    pub used: Timestamp,
    /// When it ends unless it is used.
    pub expires: Timestamp,
}

impl BrowserSession {
    /// Returns when a session ends that began at one time and was used at another.
    #[must_use]
    pub fn expires(created: Timestamp, used: Timestamp) -> Timestamp {
        created.after(SESSION_LIFE_MAX).min(used.after(SESSION_IDLE_MAX))
    }
}

/// Begins a session. A token that has very many gives up those that were unused for longest.
#[derive(Clone, Debug)]
pub struct BeginSession {
    /// What it is called.
    pub id: Uuid,
    /// The hash of its secret.
    pub secret: Fingerprint,
    /// What its token is known by.
    pub token: Fingerprint,
    /// The name of the token.
    pub name: String,
    /// The address that it begins from.
    pub address: String,
    /// The browser, as it calls itself.
    pub agent: String,
    /// Who begins it, for the event log.
    pub by: String,
}

/// Notes that a session is used. One that has expired or is gone stays so.
#[derive(Clone, Copy, Debug)]
pub struct RenewSession {
    /// The session.
    pub id: Uuid,
}

/// Ends sessions.
#[derive(Clone, Debug)]
pub struct EndSessions {
    /// Which ones.
    pub which: WhichSessions,
    /// Who ends them, for the event log.
    pub by: String,
}

/// Which sessions are ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichSessions {
    /// This one; if a token is named, only if it is of that token.
    One(Uuid, Option<Fingerprint>),
    /// All of these tokens.
    OfTokens(Vec<Fingerprint>),
}

impl WhichSessions {
    /// Returns whether it is one of those.
    #[must_use]
    pub fn has(&self, session: &BrowserSession) -> bool {
        match self {
            Self::One(id, token) => {
                session.id == *id && token.is_none_or(|token| session.token == token)
            }
            Self::OfTokens(tokens) => tokens.contains(&session.token),
        }
    }
}

/// Which sessions are listed: those that have not expired, the latest begun first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionQuery {
    /// Only those of this token.
    pub token: Option<Fingerprint>,
    /// Only those that have not expired at this time.
    pub now: Timestamp,
    /// Only those that began before this one.
    pub before: Option<Uuid>,
    /// How many at most.
    pub limit: u32,
}

/// The columns of a [`BrowserSession`], in this order.
#[macro_export]
macro_rules! browser_session_columns {
    () => {
        "id, secret, token, name, address, agent, created, used, expires"
    };
}

boxed_requests! {
    BeginSession as BeginSession -> SessionBegun(BrowserSession);
}
unit_requests! {
    RenewSession as RenewSession;
}
requests! {
    EndSessions as EndSessions -> SessionsEnded(Vec<BrowserSession>);
}
