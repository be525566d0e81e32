"""What can go wrong, as exceptions. All of them are an `OutlastError`, but for `JobCancelled`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional

if TYPE_CHECKING:
    from .jobs import Job, Workflow


class OutlastError(Exception):
    """Something of this package failed."""


class UsageError(OutlastError, ValueError):
    """The call is not valid. Nothing was sent."""


class Unreachable(OutlastError):
    """No answer came: it is not known whether anything was done."""

    def __init__(self, server: str, tries: int, reason: str) -> None:
        times = "once" if tries == 1 else f"{tries} times"
        super().__init__(f"server {server} cannot be reached (tried {times}): {reason}")
        self.server, self.tries, self.reason = server, tries, reason


class Refused(OutlastError):
    """The server refused. Nothing was done; a status of 500 and above leaves that open."""

    def __init__(
        self, status: int, error: Mapping[str, Any], retry_after: Optional[float] = None
    ) -> None:
        self.status = status
        #: A code, such as `validation_error`; `http_NNN` where the server gave none.
        self.code = str(error.get("code") or f"http_{status}")
        self.message = str(error.get("message") or "no reason given")
        #: What to do about it, if the server says.
        self.hint: Optional[str] = error.get("hint")
        self.details: Any = error.get("details")
        #: The id of the request in the server's log.
        self.request_id: Optional[str] = error.get("request_id")
        #: Seconds after which the same request may succeed, if the server says.
        self.retry_after = retry_after
        hint = f"; {self.hint}" if self.hint else ""
        super().__init__(f"server refused: {self.message} ({status} {self.code}){hint}")

    @property
    def is_for_now(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (408, 429, 502, 503, 504) and self.code != "QUEUE_FULL"


class NotFound(Refused):
    """There is no such job, workflow or path."""


class Conflict(Refused):
    """The state of the job does not allow it, another worker holds it, or it is a duplicate."""


class QueueFull(Refused):
    """The queue has no room (its `max_depth`). None of the request's jobs was stored."""


class WaitTimeout(OutlastError, TimeoutError):
    """It had not ended when the time was over."""

    def __init__(self, what: str, waited: float, last: Any) -> None:
        seen = f"; it is {last.state}" if last is not None else "; it was never seen"
        super().__init__(f"{what} had not ended after {waited:g} s{seen}")
        #: As it was last seen, if it was.
        self.last = last


class JobFailed(OutlastError):
    """The job has ended without a result."""

    def __init__(self, job: "Job") -> None:
        error = job.error or {}
        reason = f": {error.get('type', 'error')}: {error.get('message', '')}" if error else ""
        super().__init__(f"job {job.id} ({job.type}) is {job.state}{reason}")
        self.job = job


class WorkflowFailed(OutlastError):
    """The workflow has ended, and did not complete."""

    def __init__(self, workflow: "Workflow") -> None:
        super().__init__(f"workflow {workflow.id} is {workflow.state}")
        self.workflow = workflow


class Permanent(OutlastError):
    """Raise it in a handler: no other attempt could do better, so none is made."""

    def __init__(self, message: str, type: str = "permanent") -> None:
        super().__init__(message)
        self.type = type


class JobCancelled(BaseException):
    """Raised in a handler that is to stop.

    The job was cancelled or its time is over, or the worker ends or has lost its server. It is no
    `Exception`, so that `except Exception` in a handler does not swallow it.
    """

    def __init__(self, reason: str = "cancelled") -> None:
        super().__init__(reason)
        self.reason = reason


def refusal(status: int, body: Any, retry_after: Optional[float]) -> Refused:
    """Reads the server's refusal."""
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    kind = {404: NotFound, 409: Conflict}.get(status, Refused)
    if error.get("code") == "QUEUE_FULL":
        kind = QueueFull
    return kind(status, error, retry_after)
