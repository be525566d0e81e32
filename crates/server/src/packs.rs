//! The packs in force. They are replaced as a whole when they are read again; who has looked at
//! them before goes on with what it saw.

use std::sync::{Arc, PoisonError, RwLock};

use outlast_packs::PackSet;

/// A handle on the packs in force. Cheap to clone; every clone sees a replacement.
#[derive(Clone, Debug, Default)]
pub struct Packs(Arc<RwLock<Arc<PackSet>>>);

impl Packs {
    /// The packs as they are now.
    #[must_use]
    pub fn current(&self) -> Arc<PackSet> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts others in their place.
    pub fn replace(&self, packs: PackSet) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(packs);
    }
}

impl From<Arc<PackSet>> for Packs {
    fn from(packs: Arc<PackSet>) -> Self {
        Self(Arc::new(RwLock::new(packs)))
    }
}
