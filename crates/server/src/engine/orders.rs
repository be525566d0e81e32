//! Orders of operators to workers: stored first, then sent to the sessions, here or elsewhere.

use outlast_core::id::WorkerId;
use outlast_core::selector::Selector;
use outlast_core::worker::order::{OrderRefusal, WorkerOrder};
use outlast_store::command::{OrderWorkers, WorkerMove};
use outlast_store::reply::{WorkerMoveRefusal, WorkerMoved, WorkersOrdered};
use tokio::task::JoinError;

use super::input::Input;
use super::{Engine, OrderError, Unavailable};

/// Most workers that follow each other in one process and are looked through for an order.
const FOLLOWERS_MAX: usize = 100;

impl Engine {
    /// Carries out an operator's order to a worker, or to the one that has followed it in the same
    /// process: stores it, then sends it to its session.
    ///
    /// # Errors
    /// Returns why the order was not carried out.
    pub async fn order_worker(
        &self,
        mut worker: WorkerId,
        order: WorkerOrder,
        by: String,
    ) -> Result<WorkerMoved, OrderError> {
        for _ in 0..FOLLOWERS_MAX {
            match self.submit(WorkerMove::ordered(worker, order, &by)).await? {
                Err(WorkerMoveRefusal::Followed(heir)) => worker = heir,
                moved => {
                    let moved = moved?;
                    self.send(Input::Order { worker, order, by }).await?;
                    return Ok(moved);
                }
            }
        }
        Err(WorkerMoveRefusal::Followed(worker).into())
    }

    /// Carries out an order to all workers that `selector` chooses, and to those that start later.
    ///
    /// # Errors
    /// Returns why it cannot be stored now, or why it is refused.
    pub async fn order_workers(
        &self,
        selector: Selector,
        order: WorkerOrder,
        by: String,
    ) -> Result<Result<WorkersOrdered, OrderRefusal>, Unavailable> {
        let given = OrderWorkers { selector, order, by };
        let engine = self.clone();
        // It goes on if the client that waits for it leaves: the sessions must hear of the order.
        let giving = tokio::spawn(async move { engine.give_to_all(given).await });
        let failed = |error: JoinError| Unavailable::new(format!("the order failed: {error}"));
        giving.await.map_err(failed)?
    }

    async fn give_to_all(
        &self,
        given: OrderWorkers,
    ) -> Result<Result<WorkersOrdered, OrderRefusal>, Unavailable> {
        let (order, by) = (given.order, given.by.clone());
        let ordered = match self.submit(given).await? {
            Ok(ordered) => ordered,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // Also to those that were so before: one may be quiet for a reason of its own, or may have
        // missed an earlier order.
        for worker in &ordered.reached {
            self.send(Input::Order { worker: *worker, order, by: by.clone() }).await?;
        }
        Ok(Ok(ordered))
    }
}
