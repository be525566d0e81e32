//! File work whose length depends on what a job left behind, off the engine's thread.
//!
//! Two threads, made at the start, so that a host out of processes does not stop them: one
//! reads (results, checkpoints), one removes (folders). The engine waits for neither. If removing
//! falls behind, new attempts wait before they start.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::folder::WorkFolder;

type Task = Box<dyn FnOnce() + Send>;

/// Folders that may wait to be removed, beside those in use.
const LEFT_MAX: usize = 64;

/// A handle to both threads.
#[derive(Clone, Debug)]
pub(super) struct DiskThreads {
    reading: mpsc::Sender<Task>,
    removing: mpsc::Sender<Task>,
    room: Arc<Semaphore>,
}

/// A folder that the remover's thread removes when this is dropped.
#[derive(Debug)]
pub(super) struct FolderGuard {
    folder: Option<WorkFolder>,
    permit: Option<FolderPermit>,
    removing: mpsc::Sender<Task>,
}

/// Room for one folder.
pub(super) type FolderPermit = OwnedSemaphorePermit;

impl DiskThreads {
    /// Starts both threads, for this many attempts at the same time.
    pub(super) fn start(concurrency: u32) -> io::Result<Self> {
        let slots = usize::try_from(concurrency).unwrap_or(usize::MAX / 8);
        Ok(Self {
            reading: thread_of("reader")?,
            removing: thread_of("remover")?,
            room: Arc::new(Semaphore::new(slots.saturating_add(LEFT_MAX))),
        })
    }

    /// Waits until another folder may be made: at once, unless many wait to be removed. `None`
    /// if it is `stopped` before that.
    pub(super) async fn permit<T>(&self, stopped: impl Future<Output = T>) -> Option<FolderPermit> {
        tokio::select! {
            biased;
            permit = Arc::clone(&self.room).acquire_owned() => permit.ok(),
            _ = stopped => None,
        }
    }

    /// Keeps a folder until it is dropped, and removes it then.
    pub(super) fn guard(&self, folder: WorkFolder, permit: FolderPermit) -> FolderGuard {
        let removing = self.removing.clone();
        FolderGuard { folder: Some(folder), permit: Some(permit), removing }
    }

    /// Reads something; `None` only if that panicked.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        let task: Task = Box::new(move || {
            // The receiver is gone if the attempt was dropped.
            let _ = done.send(work());
        });
        self.reading.send(task).ok()?;
        result.await.ok()
    }

    /// Removes something at the very end, and waits for it no longer than `bound`: what is
    /// left then is removed by the next worker here.
    pub(super) fn remove_last(&self, work: impl FnOnce() + Send + 'static, bound: Duration) {
        let (done, ended) = mpsc::channel();
        let task: Task = Box::new(move || {
            work();
            let _ = done.send(());
        });
        if self.removing.send(task).is_ok() && ended.recv_timeout(bound).is_err() {
            tracing::warn!(
                ?bound,
                "work folder not removed; the next worker on this host will remove it"
            );
        }
    }
}

fn thread_of(name: &str) -> io::Result<mpsc::Sender<Task>> {
    let (tasks, queue) = mpsc::channel::<Task>();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        for task in queue {
            // Only this task is lost.
            if catch_unwind(AssertUnwindSafe(task)).is_err() {
                tracing::error!("internal error: reading or removing a job's files panicked");
            }
        }
    })?;
    Ok(tasks)
}

impl FolderGuard {
    /// The folder, until it is dropped.
    pub(super) const fn folder(&self) -> Option<&WorkFolder> {
        self.folder.as_ref()
    }
}

impl Drop for FolderGuard {
    fn drop(&mut self) {
        let (folder, permit) = (self.folder.take(), self.permit.take());
        // Refused only when the thread has died: then the task, and the folder, go here.
        let _ = self.removing.send(Box::new(move || {
            drop(folder);
            drop(permit);
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::{DiskThreads, LEFT_MAX};
    use crate::folder::WorkFolder;

    #[tokio::test]
    async fn nobody_waits_for_a_folder_to_be_removed_and_few_may_be_left_behind() {
        let root = tempfile::tempdir().unwrap();
        let disk = DiskThreads::start(1).unwrap();
        // The remover is busy until we say so.
        let (go, gate) = mpsc::channel::<()>();
        disk.removing.send(Box::new(move || gate.recv().unwrap_or(()))).unwrap();
        for n in 0..=LEFT_MAX {
            let permit = disk.permit(pending::<()>()).await.unwrap();
            let folder = WorkFolder::create(root.path(), &n.to_string()).unwrap();
            drop(disk.guard(folder, permit));
        }
        assert!(root.path().join("0").exists(), "the thread that drops it does not remove it");
        assert_eq!(disk.room.available_permits(), 0, "the next one waits");
        // An order to stop does not have to wait for the remover.
        assert!(disk.permit(ready(())).await.is_none());
        assert_eq!(disk.read(|| 7).await, Some(7), "reading goes on meanwhile");

        drop(go);

        let mut all = Vec::new();
        for _ in 0..=LEFT_MAX {
            all.push(disk.permit(pending::<()>()).await.unwrap());
        }
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }

    // One panic once left the worker without a reader for good.
    #[tokio::test]
    async fn a_panic_costs_the_one_read_alone() {
        let disk = DiskThreads::start(1).unwrap();
        let broken = disk.read(|| -> u8 { panic!("a page of the result that cannot be read") });
        assert_eq!(broken.await, None);
        assert_eq!(disk.read(|| 7).await, Some(7));
    }

    #[test]
    fn what_cannot_be_removed_in_time_is_left() {
        let disk = DiskThreads::start(1).unwrap();
        let (go, gate) = mpsc::channel::<()>();
        disk.remove_last(move || gate.recv().unwrap_or(()), Duration::from_millis(10));
        drop(go);
    }
}
