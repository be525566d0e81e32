"""What a handler knows about the job that it runs."""

from __future__ import annotations

import re
import threading
import time
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Mapping, Optional

from .errors import JobCancelled, OutlastError

_current: ContextVar[Optional["JobContext"]] = ContextVar("outlast_job", default=None)

#: Stores a checkpoint: the job's id, the state; returns whether the server takes checkpoints.
Store = Callable[[str, Any], bool]
#: Loads it.
Load = Callable[[str], Any]


class JobContext:
    """The job that runs. A handler gets it from `current_job()`."""

    def __init__(self, fetched: Mapping[str, Any], store: Store, load: Load) -> None:
        self.id = str(fetched["id"])
        self.type = str(fetched.get("type", ""))
        self.queue = str(fetched.get("queue", ""))
        self.args = list(fetched.get("args") or [])
        self.meta: Dict[str, Any] = dict(fetched.get("meta") or {})
        #: Which attempt this is, from 1. Those that were interrupted do not count.
        self.attempt = int(fetched.get("attempt") or 0)
        self.max_attempts: Optional[int] = fetched.get("max_attempts")
        #: Rises with every claim; Outlast refuses the report of a claim that is not the latest.
        self.epoch: Optional[int] = fetched.get("epoch")
        self.lease: Any = fetched.get("lease")
        #: Time limit of this attempt in seconds.
        timeout = fetched.get("timeout_ms") or (fetched.get("options") or {}).get("timeout_ms")
        self.timeout: Optional[float] = None if not timeout else float(timeout) / 1000
        trace = self.meta.get("traceparent")
        #: W3C trace context of the producer. Jobs that this one enqueues carry it on.
        self.traceparent: Optional[str] = trace if isinstance(trace, str) else None
        #: Set when the handler is to stop.
        self.cancelled = threading.Event()
        #: Why: `cancelled`, `timeout`, `shutdown` or `lost`.
        self.stop_reason: Optional[str] = None
        self._store, self._load = store, load

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt: pass it to services that take one."""
        return self.id

    def raise_if_cancelled(self) -> None:
        """Raises `JobCancelled` if the handler is to stop."""
        if self.cancelled.is_set():
            raise JobCancelled(self.stop_reason or "cancelled")

    def sleep(self, seconds: float) -> None:
        """Sleeps; raises `JobCancelled` as soon as the handler is to stop."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            if self.cancelled.wait(max(left, 0.0)):
                self.raise_if_cancelled()
            if left <= 0:
                return

    def checkpoint(self, state: Any) -> bool:
        """Stores JSON for the next attempt. Returns false where the server takes no checkpoints."""
        return self._store(self.id, state)

    def last_checkpoint(self) -> Any:
        """What an earlier attempt stored; `None` if there is nothing."""
        return self._load(self.id)

    def stop(self, reason: str) -> None:
        # Once: a handler that was stopped while it waited for the event may have left it locked.
        if self.stop_reason is None:
            self.stop_reason = reason
            self.cancelled.set()


def waited(fetched: Mapping[str, Any]) -> float:
    """For how many seconds it was due before it was fetched, by the server's clock.

    Infinite if the server does not say.
    """
    try:
        due = (fetched.get("enqueued_at"), fetched.get("scheduled_at"))
        times = [instant(text) for text in due if text]
        begun = instant(fetched["started_at"]) if "started_at" in fetched else time.time()
        return begun - max(times)
    except (TypeError, ValueError):
        return float("inf")


def instant(text: str) -> float:
    # Python 3.9 reads no `Z`, and not every number of digits.
    at = datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00"))
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


def current_job() -> JobContext:
    """The job that the calling handler runs."""
    job = _current.get()
    if job is None:
        raise OutlastError("no job runs here: call it in a handler")
    return job


def find() -> Optional[JobContext]:
    return _current.get()


def enter(job: Optional[JobContext]) -> None:
    """Makes it the job of this thread or task."""
    _current.set(job)
