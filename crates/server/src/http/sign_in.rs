//! Signing in with a token, once, and who a browser is from then on.
//!
//! ```text
//! token ─▶ right? ─▶ a session in the store, by the hash of a secret ─▶ cookie with the secret
//! cookie ─▶ hash ─▶ the session, remembered for a second ─▶ its token, as it is now ─▶ role
//! ```
//!
//! A session holds on every server of the store. It ends everywhere within a second or so, as nothing is
//! remembered for longer.
//!
//! - [`cookie`]: what a browser keeps; [`attempts`]: how often wrong tokens may be tried

mod attempts;
mod cookie;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderValue;
use http::request::Parts;
use outlast_core::author::Author;
use outlast_core::limits::cut;
use outlast_core::time::{BootTime, Span};
use outlast_store::browser_session::{
    BeginSession, BrowserSession, EndSessions, RenewSession, WhichSessions,
};
use outlast_store::idempotency::Fingerprint;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::App;
use super::error::ApiError;
use crate::access::{KnownToken, SignInRefusal};
use crate::clock::boot_time;
use crate::connections::{Peer, network};
use crate::settings::UiMode;
use attempts::{Attempts, Tried};
use cookie::Secret;

/// How long a session is taken for what it was when it was read.
const FRESH: Span = Span::from_secs(1);
/// Most sessions that are remembered.
const REMEMBERED_MAX: usize = 10_000;
/// How many sessions are looked up at a time. Strangers may show any cookie, and others read too.
const LOOKUPS_MAX: usize = 4;
/// How long a session is used before that is noted.
const NOTED_AFTER: Span = Span::from_secs(60);
/// Longest name of a browser that is kept, in bytes.
const AGENT_MAX: usize = 200;

/// What a server knows of sessions.
#[derive(Debug)]
pub(super) struct SignIns {
    known: Mutex<HashMap<Fingerprint, Known>>,
    lookups: Semaphore,
    attempts: Attempts,
}

/// A session as it was read at some time; or that there was none.
#[derive(Clone, Debug)]
struct Known {
    at: BootTime,
    session: Option<Arc<BrowserSession>>,
}

/// A browser that is signed in.
#[derive(Clone, Debug)]
pub(super) struct SignedIn {
    /// Its token, as it is now.
    pub(super) token: KnownToken,
    /// Its session.
    pub(super) session: Arc<BrowserSession>,
}

/// What came of signing in.
pub(super) enum Outcome {
    /// The browser keeps this.
    SignedIn(Option<HeaderValue>),
    /// The token is not one to sign in with.
    Refused(SignInRefusal),
    /// Too many wrong tokens were tried; again after this time.
    TooMany(Span),
}

impl Default for SignIns {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            lookups: Semaphore::new(LOOKUPS_MAX),
            attempts: Attempts::default(),
        }
    }
}

impl SignIns {
    fn remembered(&self, secret: &Fingerprint, now: BootTime) -> Option<Known> {
        let all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(secret).filter(|known| now.since(known.at) < FRESH).cloned()
    }

    fn remember(&self, secret: Fingerprint, known: Known) {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED_MAX {
            all.retain(|_, it| known.at.since(it.at) < FRESH);
        }
        if all.len() >= REMEMBERED_MAX {
            all.clear();
        }
        all.insert(secret, known);
    }

    /// Forgets sessions that have ended.
    pub(super) fn forget(&self, ended: &[BrowserSession]) {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for session in ended {
            all.remove(&session.secret);
        }
    }
}

/// Returns who a browser is signed in as, if it is.
pub(super) async fn signed_in(app: &App, request: &Parts) -> Result<Option<SignedIn>, ApiError> {
    let settings = app.engine.settings();
    if settings.ui == UiMode::Off || !settings.access.has_tokens() {
        return Ok(None);
    }
    for secret in cookie::shown(request, settings.tls.is_some()) {
        let Some(session) = find(app, secret.hash()).await? else { continue };
        if let Some(token) = settings.access.of_session(&session.token) {
            return Ok(Some(SignedIn { token, session }));
        }
    }
    Ok(None)
}

/// Returns a session that has not expired, and notes that it is used.
async fn find(app: &App, secret: Fingerprint) -> Result<Option<Arc<BrowserSession>>, ApiError> {
    let sign_ins = &app.sign_ins;
    let known = match sign_ins.remembered(&secret, boot_time()) {
        Some(known) => known,
        None => look_up(app, secret).await?,
    };
    let now = app.now().await?;
    let Some(session) = known.session.filter(|session| session.expires > now) else {
        return Ok(None);
    };
    if now.since(session.used) >= NOTED_AFTER {
        // Until it is read again, it counts as noted.
        let expires = BrowserSession::expires(session.created, now);
        let used = BrowserSession { used: now, expires, ..session.as_ref().clone() };
        sign_ins.remember(secret, Known { at: known.at, session: Some(Arc::new(used)) });
        let (engine, renew) = (app.engine.clone(), RenewSession { id: session.id });
        tokio::spawn(async move {
            if let Err(error) = engine.submit(renew).await {
                tracing::debug!(%error, "the use of a session is not noted");
            }
        });
    }
    Ok(Some(session))
}

/// Asks the store for a session, unless another request has meanwhile.
async fn look_up(app: &App, secret: Fingerprint) -> Result<Known, ApiError> {
    let sign_ins = &app.sign_ins;
    let _turn = sign_ins.lookups.acquire().await;
    // It is as old as the question, not as the answer.
    let at = boot_time();
    if let Some(known) = sign_ins.remembered(&secret, at) {
        return Ok(known);
    }
    let session = app.engine.store().browser_session(secret).await?.map(Arc::new);
    let known = Known { at, session };
    sign_ins.remember(secret, known.clone());
    Ok(known)
}

/// Signs a browser in.
pub(super) async fn sign_in(app: &App, request: &Parts, token: &str) -> Result<Outcome, ApiError> {
    let settings = app.engine.settings();
    let address = address(request);
    let look = || settings.access.sign_in(token);
    let (tried, line) = app.sign_ins.attempts.attempt(network(address), boot_time(), look);
    if let Some(line) = line {
        tracing::warn!(%address, tries = line.count, "failed to sign in with a token");
    }
    let token = match tried {
        Tried::Right(token) => token,
        Tried::Wrong(refusal) => return Ok(Outcome::Refused(refusal)),
        Tried::TooMany(wait) => return Ok(Outcome::TooMany(wait)),
    };
    let secret = Secret::new();
    let order = BeginSession {
        id: Uuid::now_v7(),
        secret: secret.hash(),
        token: token.hash.session_key(),
        name: token.name.clone(),
        address: address.to_string(),
        agent: agent(request),
        by: by(&token.name, request),
    };
    let session = app.engine.submit(order).await?;
    tracing::info!(session = %session.id, token = %token.name, %address, "signed in");
    let is_secure = cookie::is_secure(request, settings.tls.is_some());
    Ok(Outcome::SignedIn(cookie::keep(request, &secret, is_secure)))
}

/// Signs a browser out: its session ends, and it forgets the secret.
pub(super) async fn sign_out(app: &App, request: &Parts) -> Result<Vec<HeaderValue>, ApiError> {
    if let Some(SignedIn { session, token }) = signed_in(app, request).await? {
        let which = WhichSessions::One(session.id, None);
        end(app, EndSessions { which, by: by(&token.name, request) }).await?;
    }
    Ok(cookie::forget(request))
}

/// Ends sessions; returns those that were ended.
pub(super) async fn end(app: &App, order: EndSessions) -> Result<Vec<BrowserSession>, ApiError> {
    let by = order.by.clone();
    let ended = app.engine.submit(order).await?;
    app.sign_ins.forget(&ended);
    for session in &ended {
        tracing::info!(session = %session.id, token = %session.name, %by, "session ended");
    }
    Ok(ended)
}

fn by(name: &str, request: &Parts) -> String {
    Author { who: &format!("dashboard: {name}"), from: address(request) }.to_string()
}

/// The browser, as it calls itself.
fn agent(request: &Parts) -> String {
    let agent = request.headers.get(http::header::USER_AGENT).and_then(|it| it.to_str().ok());
    cut(agent.unwrap_or("unnamed browser").to_owned(), AGENT_MAX)
}

/// The address that a request comes from; behind a proxy, the proxy's. Headers do not say it: who sends them
/// may be anybody.
pub(super) fn address(request: &Parts) -> IpAddr {
    let peer = request.extensions.get::<Arc<Peer>>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.address())
}
