//! What queues ask of workers.
//!
//! A server chooses from which classes a worker claims. It may not know yet what was set for a queue
//! a moment ago. So a claim says what it was chosen by, and one that was chosen by anything else than
//! what is set now takes nothing.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use outlast_core::queue::QueueSettings;
use outlast_store::command::{AskedByQueues, Claim};
use outlast_store::reply::ClaimRefusal;

use super::Limits;

impl Limits {
    /// Returns what stands for all that queues ask of workers.
    #[must_use]
    pub const fn asked(&self) -> AskedByQueues {
        self.asked
    }

    /// Decides whether a native worker's claim is still what would be chosen.
    ///
    /// # Errors
    /// Returns that it is not.
    pub fn may_claim(&self, claim: &Claim) -> Result<(), ClaimRefusal> {
        if claim.asked == self.asked { Ok(()) } else { Err(ClaimRefusal::Outdated) }
    }

    /// Whether plain clients, which have no labels, may take jobs of a queue at all.
    #[must_use]
    pub fn takes_unlabelled(&self, queue: &str) -> bool {
        self.queue(queue).is_none_or(|queue| queue.placement.takes_unlabelled())
    }
}

pub(super) fn by(queues: &BTreeMap<String, QueueSettings>) -> AskedByQueues {
    let mut asking = queues.iter().filter(|(_, queue)| !queue.placement.is_empty()).peekable();
    if asking.peek().is_none() {
        return AskedByQueues::default();
    }
    let mut hasher = DefaultHasher::new();
    asking.for_each(|(name, queue)| (name, &queue.placement).hash(&mut hasher));
    AskedByQueues(hasher.finish().max(1))
}

#[cfg(test)]
mod tests {
    use outlast_core::selector::Placement;

    use super::*;

    fn asked(queues: &[(&str, &str, &str)]) -> AskedByQueues {
        let settings = |(name, requires, prefers): &(&str, &str, &str)| {
            let placement = Placement {
                requires: requires.parse().unwrap(),
                prefers: prefers.parse().unwrap(),
            };
            let max_depth = Some(7);
            ((*name).to_owned(), QueueSettings { placement, max_depth, ..QueueSettings::default() })
        };
        by(&queues.iter().map(settings).collect())
    }

    #[test]
    fn what_queues_ask_counts_and_nothing_else() {
        assert_eq!(asked(&[]), AskedByQueues::default());
        assert_eq!(asked(&[("a", "", ""), ("b", "", "")]), AskedByQueues::default());
        let gpu = asked(&[("a", "gpu", "")]);
        assert_eq!(gpu, asked(&[("a", "gpu", ""), ("b", "", "")]));
        for other in [
            asked(&[]),
            asked(&[("b", "gpu", "")]),
            asked(&[("a", "", "gpu")]),
            asked(&[("a", "gpu,zone=a", "")]),
            asked(&[("a", "gpu", ""), ("b", "gpu", "")]),
        ] {
            assert_ne!(gpu, other);
        }
    }
}
