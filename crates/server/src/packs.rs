//! The current packs. A reload replaces them as a whole; tasks that hold the previous set keep it.

use std::sync::{Arc, PoisonError, RwLock};

use outlast_packs::PackSet;

/// A handle on the current packs. Cheap to clone; every clone sees a reload.
#[derive(Clone, Debug, Default)]
pub struct Packs(Arc<RwLock<Arc<PackSet>>>);

impl Packs {
    /// Returns the current packs.
    #[must_use]
    pub fn current(&self) -> Arc<PackSet> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces them.
    pub fn replace(&self, packs: PackSet) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(packs);
    }
}

impl From<Arc<PackSet>> for Packs {
    fn from(packs: Arc<PackSet>) -> Self {
        Self(Arc::new(RwLock::new(packs)))
    }
}
