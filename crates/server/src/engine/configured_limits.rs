//! Limits that the server's configuration lists: what makes the store have them, and no others
//! from a configuration.

use std::time::Duration;

use outlast_core::limit::Limit;
use outlast_store::limit::{LimitChange, LimitRefusal, RemoveLimit, SetLimit};
use outlast_store::{Request, StoreError};

use super::{Engine, Unavailable};

/// Who sets them, for the event log.
const BY: &str = "configuration";
/// Time between two tries while the store does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// Why the store does not have the limits of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigureError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server cannot do this now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The store refuses one of them.
    #[error("limit {0} of the configuration: {1}")]
    Refused(String, LimitRefusal),
}

impl ConfigureError {
    /// Whether the store may have them later, without anybody's help.
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::Store(_) | Self::Unavailable(_) => true,
            Self::Refused(..) => false,
        }
    }
}

impl Engine {
    /// Makes the store have these limits, which the API then cannot change, and no others from a
    /// configuration.
    ///
    /// # Errors
    /// Returns why it does not have them.
    pub async fn configure_limits(&self, limits: &[Limit]) -> Result<(), ConfigureError> {
        let stored = self.store().limits().await?;
        // First, so that there is room for the others.
        for old in stored.iter().filter(|old| old.configured) {
            let name = &old.limit.name;
            if limits.iter().all(|limit| limit.name != *name) {
                let order = RemoveLimit { name: name.clone(), configured: true, by: BY.into() };
                self.change_limit(name.as_str(), order).await?;
                tracing::warn!(limit = %name, "limit removed: the configuration no longer has it");
            }
        }
        for limit in limits {
            let as_stored = stored.iter().find(|old| old.limit.name == limit.name);
            if as_stored.is_some_and(|old| old.configured && old.limit == *limit) {
                continue;
            }
            if let Some(old) = as_stored.filter(|old| !old.configured) {
                tracing::warn!(
                    limit = %limit.name,
                    set_by = %old.set_by,
                    "limit replaced: the configuration wins over the API"
                );
            }
            let order = SetLimit { limit: limit.clone(), configured: true, by: BY.into() };
            let name = limit.name.as_str();
            self.change_limit(name, order).await?;
            tracing::info!(limit = name, "limit set: the API cannot change it");
        }
        tracing::info!(limits = limits.len(), "limits of the configuration are in force");
        Ok(())
    }

    /// Does the same in the background, again and again until the store takes it.
    pub fn reconfigure_limits(&self, limits: Vec<Limit>) {
        let engine = self.clone();
        tokio::spawn(async move {
            // Older ones first.
            let _turn = engine.shared().limits_turn.lock().await;
            let mut is_logged = false;
            while let Err(error) = engine.configure_limits(&limits).await {
                let is_hopeless = !error.may_pass();
                if !is_logged || is_hopeless {
                    tracing::error!("limits of the configuration are not in force: {error}");
                    is_logged = true;
                }
                if is_hopeless || engine.shared().is_stopping() {
                    return;
                }
                // Nothing says when the store answers again.
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    async fn change_limit<R>(&self, name: &str, order: R) -> Result<LimitChange, ConfigureError>
    where
        R: Request<Reply = Result<LimitChange, LimitRefusal>>,
    {
        let changed = self.submit(order).await?;
        changed.map_err(|refusal| ConfigureError::Refused(name.to_owned(), refusal))
    }
}
