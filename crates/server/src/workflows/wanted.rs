//! Which workflows this server is to look at, since jobs of them ended here.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::workflow::WorkflowId;
use tokio::sync::{Notify, oneshot};

use super::known::KnownWorkflows;
use super::look::Unstartable;

/// Workflows to look at.
#[derive(Debug, Default)]
pub(crate) struct WantedWorkflows {
    queue: Mutex<Queue>,
    /// Woken when there are some.
    pub(crate) any: Notify,
    /// Those that were read last.
    pub(super) known: KnownWorkflows,
    /// Those with items that this server cannot start.
    pub(super) unstartable: Unstartable,
    /// Those to be looked at with the next look at the store.
    later: Mutex<HashSet<WorkflowId>>,
}

#[derive(Debug, Default)]
struct Queue {
    /// In the order in which they were wanted.
    waiting: VecDeque<WorkflowId>,
    /// The same ones.
    known: HashSet<WorkflowId>,
    /// Those that are looked at, and whether they are wanted again.
    looked_at: HashMap<WorkflowId, bool>,
    /// Who waits for a look.
    waiters: HashMap<WorkflowId, Vec<Waiter>>,
}

/// Someone who waits for a look that sees what has just happened.
#[derive(Debug)]
struct Waiter {
    /// How many looks must end: one that has begun before may not have seen it.
    looks: u8,
    done: oneshot::Sender<()>,
}

impl WantedWorkflows {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes workflows that are to be looked at.
    pub(crate) fn want(&self, workflows: impl IntoIterator<Item = WorkflowId>) {
        let mut any = false;
        let mut queue = self.queue();
        for id in workflows {
            any |= queue.add(id);
        }
        drop(queue);
        if any {
            self.any.notify_one();
        }
    }

    /// Notes a workflow that is to be looked at with the next look at the store.
    pub(crate) fn later(&self, id: WorkflowId) {
        self.later.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    /// Wants those that were left for later.
    pub(crate) fn want_later(&self) {
        let later = std::mem::take(&mut *self.later.lock().unwrap_or_else(PoisonError::into_inner));
        self.want(later);
    }

    /// Takes the next workflow, unless as many as `most` are looked at.
    pub(crate) fn take(&self, most: usize) -> Option<WorkflowId> {
        let mut queue = self.queue();
        if queue.looked_at.len() >= most {
            return None;
        }
        let id = queue.waiting.pop_front()?;
        queue.known.remove(&id);
        queue.looked_at.insert(id, false);
        Some(id)
    }

    /// A look has ended. If the workflow was wanted meanwhile, it is the last in the queue now.
    pub(crate) fn looked(&self, id: WorkflowId) {
        let mut queue = self.queue();
        if queue.looked_at.remove(&id) == Some(true) {
            queue.add(id);
        }
        let Queue { waiters, .. } = &mut *queue;
        if let Some(of) = waiters.get_mut(&id) {
            of.iter_mut().for_each(|waiter| waiter.looks -= 1);
            for waiter in of.extract_if(.., |waiter| waiter.looks == 0) {
                // Who has gone does not wait any more.
                let _ = waiter.done.send(());
            }
            of.retain(|waiter| !waiter.done.is_closed());
            if of.is_empty() {
                waiters.remove(&id);
            }
        }
    }

    /// Waits until this server has looked at a workflow, but not for longer than `most`. Who has just
    /// reported the end of a job then finds the jobs that follow.
    pub(crate) async fn settled(&self, id: WorkflowId, most: Duration) {
        let looked = {
            let mut queue = self.queue();
            let looks = match (queue.known.contains(&id), queue.looked_at.get(&id)) {
                (true, _) | (false, Some(false)) => 1,
                (false, Some(true)) => 2,
                (false, None) => return,
            };
            let (done, looked) = oneshot::channel();
            queue.waiters.entry(id).or_default().push(Waiter { looks, done });
            looked
        };
        // What takes longer is found by the next fetch.
        drop(tokio::time::timeout(most, looked).await);
    }
}

impl Queue {
    /// Returns whether it waits for a look now and did not before.
    fn add(&mut self, id: WorkflowId) -> bool {
        if let Some(again) = self.looked_at.get_mut(&id) {
            *again = true;
            return false;
        }
        let is_new = self.known.insert(id);
        if is_new {
            self.waiting.push_back(id);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn id(n: u128) -> WorkflowId {
        WorkflowId(Uuid::from_u128(n))
    }

    #[test]
    fn a_workflow_is_looked_at_once_at_a_time_and_again_if_it_was_wanted_meanwhile() {
        let wanted = WantedWorkflows::default();
        wanted.want([id(1), id(2), id(1)]);
        assert_eq!(wanted.take(10), Some(id(1)));
        wanted.want([id(1)]);
        assert_eq!(wanted.take(10), Some(id(2)));
        assert_eq!(wanted.take(10), None);
        wanted.looked(id(1));
        wanted.looked(id(2));
        assert_eq!(wanted.take(10), Some(id(1)));
        wanted.looked(id(1));
        assert_eq!(wanted.take(10), None);
    }

    #[test]
    fn no_more_are_looked_at_than_allowed() {
        let wanted = WantedWorkflows::default();
        wanted.want([id(1), id(2)]);
        assert_eq!(wanted.take(1), Some(id(1)));
        assert_eq!(wanted.take(1), None);
        wanted.looked(id(1));
        assert_eq!(wanted.take(1), Some(id(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_goes_on_after_the_look_or_after_its_time() {
        let wanted = WantedWorkflows::default();
        let long = Duration::from_secs(60);
        wanted.settled(id(1), long).await;
        wanted.want([id(1)]);
        let began = tokio::time::Instant::now();
        wanted.settled(id(1), Duration::from_millis(5)).await;
        assert_eq!(began.elapsed(), Duration::from_millis(5));
        assert_eq!(wanted.take(1), Some(id(1)));
        let looked = async {
            tokio::time::sleep(Duration::from_millis(3)).await;
            wanted.looked(id(1));
        };
        tokio::join!(wanted.settled(id(1), long), looked);
        assert_eq!(began.elapsed(), Duration::from_millis(8));
    }
}
