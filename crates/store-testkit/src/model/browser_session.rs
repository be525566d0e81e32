//! Sessions of browsers.

use outlast_core::limits::SESSIONS_OF_TOKEN_MAX;
use outlast_store::browser_session::{
    BeginSession, BrowserSession, RenewSession, SessionQuery, WhichSessions,
};
use outlast_store::event::EventName;
use outlast_store::idempotency::Fingerprint;
use outlast_store_rules::rules::{begun_session, session_event};
use uuid::Uuid;

use crate::model::tables::Tables;
use crate::model::tx::Tx;

impl Tx<'_> {
    pub(super) fn begin_session(&mut self, order: &BeginSession) -> BrowserSession {
        let session = begun_session(order, self.now());
        let all = &mut self.tables.sessions;
        all.entry(session.id).or_insert_with(|| session.clone());
        let others = all.values().filter(|it| it.token == session.token && it.id != session.id);
        let mut others: Vec<_> = others.map(|it| (it.used, it.id)).collect();
        others.sort_unstable();
        let excess = (others.len() + 1).saturating_sub(SESSIONS_OF_TOKEN_MAX);
        let excess = others.into_iter().take(excess).map(|(_, id)| id).collect();
        self.remove_sessions(excess, &order.by);
        let began = session_event(&session, EventName::SessionBegan, self.now(), &order.by);
        self.log_event(began);
        session
    }

    pub(super) fn renew_session(&mut self, order: RenewSession) {
        let now = self.now();
        if let Some(session) = self.tables.sessions.get_mut(&order.id)
            && session.expires > now
        {
            session.used = now;
            session.expires = BrowserSession::expires(session.created, now);
        }
    }

    pub(super) fn end_sessions(&mut self, which: &WhichSessions, by: &str) -> Vec<BrowserSession> {
        let all = self.tables.sessions.values();
        let ids = all.filter(|session| which.has(session)).map(|session| session.id).collect();
        self.remove_sessions(ids, by)
    }

    fn remove_sessions(&mut self, mut ids: Vec<Uuid>, by: &str) -> Vec<BrowserSession> {
        ids.sort_unstable();
        let gone = ids.iter().filter_map(|id| self.tables.sessions.remove(id));
        let gone: Vec<BrowserSession> = gone.collect();
        for session in &gone {
            let ended = session_event(session, EventName::SessionEnded, self.now(), by);
            self.log_event(ended);
        }
        gone
    }

    /// Forgets sessions that have expired, the earliest first; returns how many.
    pub(super) fn prune_sessions(&mut self, limit: usize) -> usize {
        let now = self.now();
        let expired = self.tables.sessions.values().filter(|it| it.expires <= now);
        let mut expired: Vec<_> = expired.map(|it| (it.expires, it.id)).collect();
        expired.sort_unstable();
        expired.truncate(limit);
        for (_, id) in &expired {
            self.tables.sessions.remove(id);
        }
        expired.len()
    }
}

impl Tables {
    pub(super) fn session_of(&self, secret: &Fingerprint) -> Option<BrowserSession> {
        self.sessions.values().find(|session| session.secret == *secret).cloned()
    }

    pub(super) fn sessions_of(&self, query: &SessionQuery) -> Vec<BrowserSession> {
        let all = self.sessions.values().rev();
        let wanted = all.filter(|it| {
            it.expires > query.now
                && query.token.is_none_or(|token| it.token == token)
                && query.before.is_none_or(|before| it.id < before)
        });
        wanted.take(usize::try_from(query.limit).unwrap_or(usize::MAX)).cloned().collect()
    }
}
