//! Tasks that look at one thing each, side by side.

use std::collections::HashMap;

use tokio::task::{Id, JoinSet};

/// Tasks, and what each is about. Also of one that panics it is known what it was about.
pub(super) struct Looks<T> {
    tasks: JoinSet<()>,
    about: HashMap<Id, T>,
}

impl<T> Looks<T> {
    pub(super) fn new() -> Self {
        Self { tasks: JoinSet::new(), about: HashMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Whether one of them is about this.
    pub(super) fn are_about(&self, it: &T) -> bool
    where
        T: PartialEq,
    {
        self.about.values().any(|about| about == it)
    }

    /// Begins to look.
    pub(super) fn begin(&mut self, about: T, look: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(look);
        self.about.insert(task.id(), about);
    }

    /// Waits until a look has ended; returns what it was about, or `None` if none runs. Safe to drop while
    /// it waits.
    pub(super) async fn ended(&mut self) -> Option<T> {
        let id = match self.tasks.join_next_with_id().await? {
            Ok((id, ())) => id,
            // The log has the panic.
            Err(error) => error.id(),
        };
        self.about.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::Looks;

    #[tokio::test]
    async fn a_look_that_panics_ends_as_the_one_it_is() {
        let mut looks = Looks::new();
        looks.begin("calm", std::future::pending());
        looks.begin("panics", async { panic!("on purpose") });
        assert!(looks.are_about(&"calm") && looks.are_about(&"panics"));
        assert_eq!(looks.ended().await, Some("panics"));
        assert!(looks.are_about(&"calm") && !looks.are_about(&"panics"));
        assert!(!looks.is_empty(), "the calm one goes on");
        let mut none = Looks::<&str>::new();
        assert_eq!(none.ended().await, None);
    }
}
