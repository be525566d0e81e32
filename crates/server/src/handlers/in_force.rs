//! What holds for dead letters now: the rules of the configuration, which a reload replaces, and those
//! of queues, as they were last read.

use std::sync::{Arc, PoisonError, RwLock};

use outlast_store::queue::QueueRecord;

use super::{Handlers, Rule};

/// The settings in force. Cheap to clone; every clone sees a reload, and all share one list of rules.
#[derive(Clone, Debug)]
pub struct InForce(Arc<RwLock<Current>>);

#[derive(Debug)]
struct Current {
    handlers: Arc<Handlers>,
    /// The queues that have rules.
    queues: Vec<QueueRecord>,
    /// Those of both.
    rules: Arc<[Rule]>,
    /// Whether this server runs handlers though there are no rules: no other one does.
    runs_leftovers: bool,
}

impl InForce {
    /// Replaces the settings of the configuration.
    pub fn configure(&self, handlers: Handlers) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        current.rules = handlers.with_queues(&current.queues).into();
        current.handlers = Arc::new(handlers);
    }

    /// Returns the settings of the configuration.
    pub(crate) fn handlers(&self) -> Arc<Handlers> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).handlers)
    }

    /// Returns the rules of the configuration and of queues.
    pub(crate) fn rules(&self) -> Arc<[Rule]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).rules)
    }

    /// Runs the handlers that wait though there are no rules.
    pub(crate) fn run_leftovers(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).runs_leftovers = true;
    }

    /// Whether this server runs handlers.
    pub(crate) fn runs_handlers(&self) -> bool {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        current.runs_leftovers || !current.rules.is_empty()
    }

    /// Takes over the rules of all queues, as they are stored now; returns all rules.
    pub(crate) fn set_queues(&self, all: &[QueueRecord]) -> Arc<[Rule]> {
        let with_rules = || all.iter().filter(|queue| !queue.settings.dead_letters.is_empty());
        // They are read each second, and seldom differ.
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if with_rules().eq(&current.queues) {
            return Arc::clone(&current.rules);
        }
        drop(current);
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        current.queues = with_rules().cloned().collect();
        current.rules = current.handlers.with_queues(&current.queues).into();
        Arc::clone(&current.rules)
    }
}

impl From<Handlers> for InForce {
    fn from(handlers: Handlers) -> Self {
        let rules = handlers.with_queues(&[]).into();
        let (handlers, queues) = (Arc::new(handlers), Vec::new());
        let current = Current { handlers, queues, rules, runs_leftovers: false };
        Self(Arc::new(RwLock::new(current)))
    }
}

impl Default for InForce {
    fn default() -> Self {
        Handlers::default().into()
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::queue::{LetterRule, QueueSettings};
    use outlast_core::time::Timestamp;

    use super::*;

    fn queue(name: &str, actions: &[&str]) -> QueueRecord {
        let rule = |action: &&str| LetterRule {
            reasons: Vec::new(),
            webhook: None,
            action: Some((*action).to_owned()),
        };
        let dead_letters = actions.iter().map(rule).collect();
        QueueRecord {
            queue: name.to_owned(),
            settings: QueueSettings { dead_letters, ..QueueSettings::default() },
            set_at: Timestamp(0),
            set_by: "test".to_owned(),
        }
    }

    fn configured(actions: &[&str]) -> Handlers {
        let rule = |action: &&str| Rule {
            queues: Vec::new(),
            types: Vec::new(),
            reasons: Vec::new(),
            webhook: None,
            action: Some((*action).to_owned()),
        };
        Handlers { rules: actions.iter().map(rule).collect(), ..Handlers::default() }
    }

    fn actions(in_force: &InForce) -> Vec<String> {
        in_force.rules().iter().filter_map(|rule| rule.action.clone()).collect()
    }

    #[test]
    fn a_reload_replaces_the_rules_of_the_configuration_and_leaves_those_of_queues() {
        let in_force = InForce::from(configured(&["a.old"]));
        in_force.set_queues(&[queue("mail", &["b.of_queue"]), queue("web", &[])]);
        assert_eq!(actions(&in_force), ["a.old", "b.of_queue"]);
        in_force.configure(configured(&["a.new", "a.newer"]));
        assert_eq!(actions(&in_force), ["a.new", "a.newer", "b.of_queue"]);
        in_force.set_queues(&[]);
        assert_eq!(actions(&in_force), ["a.new", "a.newer"]);
        in_force.configure(configured(&[]));
        assert!(in_force.rules().is_empty());
    }

    #[test]
    fn the_same_settings_of_queues_leave_the_list_as_it_is() {
        let in_force = InForce::from(configured(&["a.b"]));
        in_force.set_queues(&[queue("mail", &["b.of_queue"])]);
        let rules = in_force.rules();
        in_force.set_queues(&[queue("mail", &["b.of_queue"]), queue("web", &[])]);
        assert!(Arc::ptr_eq(&rules, &in_force.rules()));
    }
}
