//! Commands that know their replies: who submits one gets a reply of its kind.

use crate::command::Command;
use crate::reply::Reply;

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

/// Implements [`Request`]: how each becomes a command and is taken back, and what of the reply it
/// gets.
macro_rules! implement {
    ($request:ty, $type:ty: $into:pat => $command:expr, $from:pat => $back:expr,
        $reply:pat => $taken:expr) => {
        impl From<$request> for $crate::Command {
            fn from($into: $request) -> Self {
                $command
            }
        }

        impl $crate::Request for $request {
            type Reply = $type;

            fn reply(reply: $crate::Reply) -> Result<$type, Box<$crate::Reply>> {
                match reply {
                    $reply => Ok($taken),
                    other => Err(Box::new(other)),
                }
            }

            fn from_command(command: $crate::Command) -> Option<Self> {
                match command {
                    $from => Some($back),
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use implement;

/// Lists requests that are what their command holds: `Request as Command -> Reply(type)`.
macro_rules! requests {
    ($($request:ident as $command:ident -> $reply:ident($type:ty);)*) => {$(
        $crate::request::implement! { $request, $type:
            it => $crate::Command::$command(it), $crate::Command::$command(it) => it,
            $crate::Reply::$reply(it) => it }
    )*};
}
pub(crate) use requests;

/// The same for those that their command holds in a box.
macro_rules! boxed_requests {
    ($($request:ident as $command:ident -> $reply:ident($type:ty);)*) => {$(
        $crate::request::implement! { $request, $type:
            it => $crate::Command::$command(Box::new(it)), $crate::Command::$command(it) => *it,
            $crate::Reply::$reply(it) => it }
    )*};
}
pub(crate) use boxed_requests;

/// The same for those that wrap what their command holds.
macro_rules! newtype_requests {
    ($($request:ident as $command:ident -> $reply:ident($type:ty);)*) => {$(
        $crate::request::implement! { $request, $type:
            it => $crate::Command::$command(it.0), $crate::Command::$command(it) => Self(it),
            $crate::Reply::$reply(it) => it }
    )*};
}
pub(crate) use newtype_requests;

/// The same for those that are done, whatever was before.
macro_rules! unit_requests {
    ($($request:ident as $command:ident;)*) => {$(
        $crate::request::implement! { $request, ():
            it => $crate::Command::$command(it), $crate::Command::$command(it) => it,
            $crate::Reply::Done => () }
    )*};
}
pub(crate) use unit_requests;
