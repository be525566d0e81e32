//! Sessions of browsers whose tokens are gone from the configuration.

use std::time::Duration;

use outlast_store::browser_session::{EndSessions, WhichSessions};
use outlast_store::idempotency::Fingerprint;

use super::Engine;

/// Time between two tries while the store does not answer.
const PAUSE: Duration = Duration::from_secs(1);

impl Engine {
    /// Ends the sessions of tokens in the background, again and again until the store takes it. They are
    /// of no use any more from the moment on that the tokens are unknown; this has them stay so if one
    /// comes back.
    pub fn end_sessions_of(&self, tokens: Vec<Fingerprint>) {
        if tokens.is_empty() {
            return;
        }
        let engine = self.clone();
        tokio::spawn(async move {
            let which = WhichSessions::OfTokens(tokens);
            let order = EndSessions { which, by: "configuration".to_owned() };
            loop {
                match engine.submit(order.clone()).await {
                    Ok(ended) if ended.is_empty() => return,
                    Ok(ended) => {
                        let sessions = ended.len();
                        tracing::info!(sessions, "sessions ended: their tokens are gone");
                        return;
                    }
                    Err(error) if engine.shared().is_stopping() => {
                        tracing::warn!("sessions of removed tokens are not deleted: {error}");
                        return;
                    }
                    Err(error) => tracing::debug!("sessions are not deleted yet: {error}"),
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
}
