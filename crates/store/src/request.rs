//! Commands with their replies: who submits one gets the reply of its kind, and no other.

use outlast_core::id::WorkerId;
use outlast_core::leadership::{Leadership, LeadershipRefusal};
use outlast_core::queue::QueueRefusal;
use outlast_core::worker::liveness::{Standing, WorkerRefusal};

use crate::arrival::{EnqueueArrived, EnqueuedArrived};
use crate::command::{
    Attach, Claim, Command, Finish, ForgetDeadLetter, JobOrder, Lapse, LeadershipRequest, LogChunk,
    NewJob, Progress, Prune, QueueOrder, Recount, Registration, RemoveLimit, Renew, SetLimit,
    SetQueue, Start, Strand, Sweep, WorkerMove,
};
use crate::extend::Extend;
use crate::idempotency::{EnqueueOnce, EnqueueOnceRefusal, EnqueuedOnce};
use crate::limit::{LimitChange, LimitRefusal, Miscount};
use crate::queue::QueueChanged;
use crate::reply::{
    Attached, ClaimRefusal, Claims, EnqueueRefusal, Enqueued, Extended, MoveRefusal, Moved,
    NotFound, Pruned, RenewRefusal, Renewed, Reply, Stranded, Swept, WorkerMoveRefusal,
    WorkerMoved,
};

/// A command that knows its reply.
pub trait Request: Into<Command> {
    /// Comes back for it.
    type Reply: 'static;

    /// Takes the reply out of one of a batch.
    ///
    /// # Errors
    /// Hands back a reply that is not of this kind: the store answered another command.
    fn reply(reply: Reply) -> Result<Self::Reply, Box<Reply>>;

    /// Takes the request out of the command that it became; `None` if that is of another kind.
    fn from_command(command: Command) -> Option<Self>;
}

/// A command of any kind has a reply of any kind.
impl Request for Command {
    type Reply = Reply;

    fn reply(reply: Reply) -> Result<Reply, Box<Reply>> {
        Ok(reply)
    }

    fn from_command(command: Command) -> Option<Self> {
        Some(command)
    }
}

/// Stores several jobs, or none of them.
#[derive(Clone, Debug)]
pub struct EnqueueAll(pub Vec<NewJob>);

/// Forgets a worker that is no longer live.
#[derive(Clone, Copy, Debug)]
pub struct ForgetWorker(pub WorkerId);

/// Drops every job, queue and worker. Conformance runs only.
#[derive(Clone, Copy, Debug)]
pub struct Reset;

/// Implements [`Request`] of commands: how each becomes a command and is taken back, and how its
/// reply is.
macro_rules! requests {
    ($($request:ty {
        $into:pat => $command:expr, $from:pat => $back:expr, $reply:pat => $taken:expr, $type:ty
    })*) => {$(
        impl From<$request> for Command {
            fn from($into: $request) -> Self {
                $command
            }
        }

        impl Request for $request {
            type Reply = $type;

            fn reply(reply: Reply) -> Result<$type, Box<Reply>> {
                match reply {
                    $reply => Ok($taken),
                    other => Err(Box::new(other)),
                }
            }

            fn from_command(command: Command) -> Option<Self> {
                match command {
                    $from => Some($back),
                    _ => None,
                }
            }
        }
    )*};
}

/// The same for commands whose request is their content, boxed or not, or no more than a mark.
macro_rules! plain_requests {
    ($($request:ident as $command:ident -> $reply:ident($type:ty);)*) => {
        requests! {$($request {
            it => Command::$command(it), Command::$command(it) => it, Reply::$reply(it) => it, $type
        })*}
    };
}
macro_rules! boxed_requests {
    ($($request:ident as $command:ident -> $reply:ident($type:ty);)*) => {
        requests! {$($request {
            it => Command::$command(Box::new(it)), Command::$command(it) => *it,
            Reply::$reply(it) => it, $type
        })*}
    };
}

plain_requests! {
    EnqueueArrived as EnqueueArrived -> EnqueuedArrived(EnqueuedArrived);
    Claim as Claim -> Claimed(Result<Claims, ClaimRefusal>);
    Start as Start -> Moved(Result<Moved, MoveRefusal>);
    Extend as Extend -> Extended(Extended);
    Renew as Renew -> Renewed(Result<Renewed, RenewRefusal>);
    Attach as Attach -> Attached(Result<Attached, RenewRefusal>);
    WorkerMove as Worker -> WorkerMoved(Result<WorkerMoved, WorkerMoveRefusal>);
    Lapse as Lapse -> WorkerMoved(Result<WorkerMoved, WorkerMoveRefusal>);
    JobOrder as Order -> Moved(Result<Moved, MoveRefusal>);
    ForgetDeadLetter as ForgetDeadLetter -> Forgotten(Result<(), NotFound>);
    Sweep as Sweep -> Swept(Swept);
    Strand as Strand -> Stranded(Stranded);
    RemoveLimit as RemoveLimit -> LimitChanged(Result<LimitChange, LimitRefusal>);
    Recount as Recount -> Recounted(Result<Vec<Miscount>, LeadershipRefusal>);
    LeadershipRequest as Leadership -> Leadership(Result<Leadership, LeadershipRefusal>);
    Prune as Prune -> Pruned(Result<Pruned, LeadershipRefusal>);
}

boxed_requests! {
    NewJob as Enqueue -> Enqueued(Result<Enqueued, EnqueueRefusal>);
    EnqueueOnce as EnqueueOnce -> EnqueuedOnce(Result<EnqueuedOnce, EnqueueOnceRefusal>);
    Finish as Finish -> Moved(Result<Moved, MoveRefusal>);
    Progress as Progress -> Moved(Result<Moved, MoveRefusal>);
    Registration as Register -> Registered(Result<Standing, WorkerRefusal>);
    SetQueue as SetQueue -> QueueSet(Result<QueueChanged, QueueRefusal>);
    SetLimit as SetLimit -> LimitChanged(Result<LimitChange, LimitRefusal>);
}

requests! {
    EnqueueAll {
        it => Command::EnqueueAll(it.0), Command::EnqueueAll(jobs) => Self(jobs),
        Reply::EnqueuedAll(it) => it, Result<Vec<Enqueued>, (usize, EnqueueRefusal)>
    }
    ForgetWorker {
        it => Command::ForgetWorker(it.0), Command::ForgetWorker(worker) => Self(worker),
        Reply::Forgotten(it) => it, Result<(), NotFound>
    }
    QueueOrder { it => Command::Queue(it), Command::Queue(it) => it, Reply::Done => (), () }
    LogChunk { it => Command::Log(it), Command::Log(it) => it, Reply::Done => (), () }
    Reset { Reset => Command::Reset, Command::Reset => Self, Reply::Done => (), () }
}
