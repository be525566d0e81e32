"""What is said about a job when it is enqueued, and how the wire writes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from .errors import UsageError

#: Seconds, or a `timedelta`.
Duration = Union[int, float, timedelta]


def seconds(length: Duration) -> float:
    value = length.total_seconds() if isinstance(length, timedelta) else float(length)
    if not math.isfinite(value) or value < 0:
        raise UsageError(f"{length!r} is no length of time")
    return value


def millis(length: Duration) -> int:
    return round(seconds(length) * 1000)


def iso(length: Duration) -> str:
    """ISO 8601, in seconds: all of its digits, and no needless zeros."""
    digits = f"{Decimal(repr(seconds(length))):f}"
    return f"PT{digits.rstrip('0').rstrip('.') if '.' in digits else digits}S"


def instant(at: datetime) -> str:
    if at.tzinfo is None:
        raise UsageError(f"{at!r} has no time zone; write datetime(…, tzinfo=timezone.utc)")
    return at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True)
class Retry:
    """How a failing job is tried again. What is left out has the server's defaults."""

    #: In all, the first included.
    max_attempts: Optional[int] = None
    #: Pause before the second attempt.
    first_pause: Optional[Duration] = None
    longest_pause: Optional[Duration] = None
    #: The factor from each pause to the next.
    factor: Optional[float] = None
    #: `exponential`, `linear`, `constant` or `polynomial`.
    strategy: Optional[str] = None
    jitter: Optional[bool] = None
    #: Types of errors after which there is no further attempt, such as `ValueError`.
    never_for: Sequence[str] = ()
    #: Whether a job without attempts left becomes a dead letter; otherwise it is discarded.
    dead_letter: bool = False

    def wire(self) -> Dict[str, Any]:
        sent: Dict[str, Any] = {}
        for name, value in (
            ("max_attempts", self.max_attempts),
            ("backoff_coefficient", self.factor),
            ("backoff_strategy", self.strategy),
            ("jitter", self.jitter),
        ):
            if value is not None:
                sent[name] = value
        if self.first_pause is not None:
            sent["initial_interval_ms"] = millis(self.first_pause)
        if self.longest_pause is not None:
            sent["max_interval_ms"] = millis(self.longest_pause)
        if self.never_for:
            sent["non_retryable_errors"] = list(self.never_for)
        if self.dead_letter:
            sent["on_exhaustion"] = "dead_letter"
        return sent


@dataclass(frozen=True)
class Unique:
    """Which jobs are the same, and what becomes of a new one while another one is stored.

    Jobs of other types are always other jobs.
    """

    #: Whether other arguments make another job.
    by_args: bool = True
    #: Only these fields of the first argument that is an object count.
    args_keys: Sequence[str] = ()
    by_queue: bool = False
    #: These fields of `meta` count, too.
    meta_keys: Sequence[str] = ()
    #: For how long after it was stored a job is in the way; otherwise in its `states`.
    period: Optional[Duration] = None
    states: Sequence[str] = ()
    #: `reject` (`Conflict` is raised), `ignore` (the other job is returned), `replace` or
    #: `replace_except_schedule`.
    on_conflict: str = "reject"

    def wire(self) -> Dict[str, Any]:
        keys = ["type"]
        if self.by_args or self.args_keys:
            keys.append("args")
        if self.by_queue:
            keys.append("queue")
        if self.meta_keys:
            keys.append("meta")
        sent: Dict[str, Any] = {"keys": keys, "on_conflict": self.on_conflict}
        for name, names in (
            ("args_keys", self.args_keys),
            ("meta_keys", self.meta_keys),
            ("states", self.states),
        ):
            if names:
                sent[name] = list(names)
        if self.period is not None:
            sent["period"] = iso(self.period)
        return sent


@dataclass(frozen=True)
class Options:
    """How a job is to be run. What is left out has the server's defaults."""

    queue: Optional[str] = None
    #: From -100 to 100; higher goes first in its queue.
    priority: Optional[int] = None
    #: It runs this long from now at the earliest.
    delay: Optional[Duration] = None
    #: It runs then at the earliest.
    at: Optional[datetime] = None
    #: It is not started any more after this long.
    expires_after: Optional[Duration] = None
    #: Time limit of one attempt.
    timeout: Optional[Duration] = None
    #: Tries after the first one; `retry` says more.
    retries: Optional[int] = None
    retry: Optional[Retry] = None
    unique: Optional[Unique] = None
    #: Any JSON; handlers and lists show it.
    meta: Mapping[str, Any] = field(default_factory=dict)
    #: Makes the request safe to send again, also after a crash of this program.
    idempotency_key: Optional[str] = None
    tags: Sequence[str] = ()
    #: Outlast only: what the job belongs to, such as `{"tenant": "42"}`.
    keys: Mapping[str, str] = field(default_factory=dict)
    #: Outlast only: labels that its worker must have.
    requires: Optional[str] = None
    #: Outlast only: labels that its worker should have.
    prefers: Optional[str] = None
    #: Options by their name in the protocol, for those that are not here.
    more: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Options":
        return cls().with_these(given)

    def with_these(self, given: Mapping[str, Any]) -> "Options":
        """The same, but for what is given."""
        unknown = sorted(set(given) - set(self.__dataclass_fields__))
        if unknown:
            known = ", ".join(self.__dataclass_fields__)
            raise UsageError(f"no such option: {', '.join(unknown)}; there are {known}")
        given = dict(given)
        # The last word about the time counts.
        if given.get("delay") is not None:
            given.setdefault("at", None)
        elif given.get("at") is not None:
            given.setdefault("delay", None)
        if isinstance(given.get("retry"), int):
            raise UsageError("`retry` is a Retry; for a number of tries write `retries`")
        return replace(self, **given)

    def wire(self) -> Dict[str, Any]:
        if self.delay is not None and self.at is not None:
            raise UsageError("say `delay` or `at`, not both")
        sent: Dict[str, Any] = dict(self.more)
        for name, value in (
            ("queue", self.queue),
            ("priority", self.priority),
            ("requires", self.requires),
            ("prefers", self.prefers),
        ):
            if value is not None:
                sent[name] = value
        if self.delay is not None:
            sent["delay_ms"] = millis(self.delay)
        if self.at is not None:
            sent["scheduled_at"] = instant(self.at)
        if self.expires_after is not None:
            sent["expires_at"] = f"+{iso(self.expires_after)}"
        if self.timeout is not None:
            sent["timeout_ms"] = millis(self.timeout)
        retry = self.retry.wire() if self.retry is not None else {}
        if self.retries is not None:
            if self.retries < 0:
                raise UsageError("`retries` is 0 or more")
            retry.setdefault("max_attempts", self.retries + 1)
        if retry:
            sent["retry"] = retry
        if self.unique is not None:
            sent["unique"] = self.unique.wire()
        if self.keys:
            sent["keys"] = {name: str(value) for name, value in self.keys.items()}
        if self.tags:
            sent["tags"] = list(self.tags)
        return sent


@dataclass(frozen=True)
class NewJob:
    """A job that is not stored yet: for `Client.enqueue_all` and workflows."""

    type: str
    args: Sequence[Any] = ()
    options: Options = field(default_factory=Options)

    def wire(self) -> Dict[str, Any]:
        if isinstance(self.args, (str, bytes)) or not isinstance(self.args, Sequence):
            raise UsageError(f"args of {self.type!r} are a list, such as [1, 2]")
        args: List[Any] = list(self.args)
        sent: Dict[str, Any] = {"type": self.type, "args": args}
        if self.options.meta:
            sent["meta"] = dict(self.options.meta)
        options = self.options.wire()
        if options:
            sent["options"] = options
        return sent

    def using(self, **options: Any) -> "NewJob":
        """The same job with other options."""
        return replace(self, options=self.options.with_these(options))
