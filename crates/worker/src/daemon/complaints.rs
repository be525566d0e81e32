//! Why the worker can run nothing, of all that find a reason: it takes work again when the last of
//! them is withdrawn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use outlast_sdk::Control;

/// Who complains; each has one reason at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// An attempt could not be started for want of something on the host.
    Host,
    /// The probe of the operator's.
    Probe,
    /// Disk space in the work folder.
    Disk,
    /// Memory pressure.
    Memory,
}

/// The reasons that stand. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Complaints {
    control: Control,
    stand: Arc<Mutex<BTreeMap<Source, String>>>,
}

impl Complaints {
    pub(super) fn new(control: Control) -> Self {
        Self { control, stand: Arc::default() }
    }

    /// Gives a reason, in place of an earlier one of the same source.
    pub(super) fn raise(&self, source: Source, reason: &str) {
        // Sent under the lock, so that what the engine hears last is what stands.
        let mut stand = self.stand.lock().unwrap_or_else(PoisonError::into_inner);
        stand.insert(source, reason.to_owned());
        self.control.fault(in_words(&stand));
    }

    /// Takes the reason of a source back.
    pub(super) fn withdraw(&self, source: Source) {
        let mut stand = self.stand.lock().unwrap_or_else(PoisonError::into_inner);
        if stand.remove(&source).is_none() {
            return;
        }
        match stand.is_empty() {
            true => self.control.recovered(),
            false => self.control.fault(in_words(&stand)),
        }
    }
}

fn in_words(stand: &BTreeMap<Source, String>) -> String {
    stand.values().map(String::as_str).collect::<Vec<_>>().join("; ")
}
