"""How an attempt ended, as the worker reports it."""

from __future__ import annotations

import asyncio
import json
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Union

from .errors import JobCancelled, Permanent

if TYPE_CHECKING:
    from .app import Task
    from .context import JobContext

#: Longest message of an error, in characters, and most lines of where it came from.
MESSAGE_MAX, FRAMES_MAX = 8192, 30
#: Why a handler was stopped, and what the report says of it.
STOPPED = {
    "cancelled": "the job was cancelled",
    "shutdown": "the worker shuts down",
    "lost": "the worker has lost its server",
}


@dataclass(frozen=True)
class Outcome:
    #: `ack` or `nack`.
    path: str
    fields: Dict[str, Any]

    @property
    def text(self) -> str:
        if self.fields.get("requeue"):
            return "handed back"
        error = self.fields.get("error")
        return "completed" if error is None else f"{error['type']}: {error['message']}"


def completed(result: Any) -> Outcome:
    try:
        json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return failed("invalid_result", f"the result is no JSON: {error}", retryable=False)
    return Outcome("ack", {"result": result})


def failed(
    type: str, message: str, *, retryable: bool = True, frames: Optional[str] = None
) -> Outcome:
    error: Dict[str, Any] = {
        "type": readable(type),
        "message": readable(message),
        "retryable": retryable,
    }
    if frames:
        error["details"] = {"backtrace": list(map(readable, frames.splitlines()[-FRAMES_MAX:]))}
    return Outcome("nack", {"error": error})


def handed_back() -> Outcome:
    """It did not begin: the attempt counts for nothing."""
    return Outcome("nack", {"requeue": True})


def readable(text: Any) -> str:
    """Not too long, and without halves of characters, such as in names of files."""
    return str(text)[:MESSAGE_MAX].encode("utf-8", "replace").decode()


def refused(outcome: Outcome, why: str) -> Optional[Outcome]:
    """What to report instead of what the server does not take; `None` if nothing is left to try."""
    if outcome.path == "ack":
        return failed("invalid_result", why, retryable=False)
    error = outcome.fields.get("error")
    if error is None or error["type"] == "invalid_error":
        return None
    return failed("invalid_error", why, retryable=error["retryable"])


def stopped(job: "JobContext") -> Outcome:
    """It uses up no retry, but for a timeout. A job that was cancelled stays cancelled."""
    if job.stop_reason == "timeout":
        return failed("timeout", f"it ran longer than its {job.timeout:g} s")
    return failed("shutdown", STOPPED.get(job.stop_reason or "", "the worker stopped it"))


def outcome_of(error: BaseException, job: "JobContext") -> Outcome:
    """What an exception of a handler means."""
    # Whatever it raises once it was stopped, it raises because of that.
    if job.stop_reason is not None:
        return stopped(job)
    frames = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if isinstance(error, Permanent):
        return failed(error.type, str(error), retryable=False, frames=frames)
    return failed(type(error).__name__, str(error), frames=frames)


def bound(task: "Optional[Task[Any, Any]]", job: "JobContext") -> Union[Outcome, Callable[[], Any]]:
    """The call of the handler, or the outcome of a job that has none."""
    if task is None:
        # Another worker may have one, of a newer version say.
        return failed("no_handler", f"no handler for {job.type}")
    try:
        args, kwargs = task.from_wire(job.args)
    except TypeError as error:
        return failed("invalid_args", f"{job.type}: {error}", retryable=False)
    return lambda: task.function(*args, **kwargs)


def called(call: Callable[[], Any], job: "JobContext") -> Outcome:
    """Calls a handler that is no coroutine."""
    try:
        return completed(call())
    except BaseException as error:  # whatever a handler raises ends only its attempt
        return outcome_of(error, job)


async def awaited(call: Callable[[], Any], job: "JobContext") -> Outcome:
    """Runs a handler that is a coroutine."""
    try:
        return completed(await call())
    except asyncio.CancelledError as error:
        return outcome_of(JobCancelled(str(error)) if job.stop_reason is None else error, job)
    except BaseException as error:
        return outcome_of(error, job)


def uninterrupted(perform: Callable[[], Outcome], close: Callable[[], None], job: Any) -> Outcome:
    """Performs an attempt whose stop is an exception that may come at any moment, once.

    After `close` it does not come any more.
    """
    found: Optional[Outcome] = None
    while True:
        try:
            if found is None:
                found = perform()
            close()
            return found
        except JobCancelled:
            found = found or stopped(job)
