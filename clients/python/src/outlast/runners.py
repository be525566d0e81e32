"""Where a handler runs, and how it is stopped there: a thread, an event loop, a process.

    perform() ─▶ the outcome          stop(reason) ─▶ asks it to end          kill() ─▶ ends it

Only a process can be killed. A thread that does not end has to be left behind.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import logging
import operator
import sys
import threading
from typing import Any, Callable, Coroutine, Optional

from . import context
from .app import Task
from .backoff import now
from .context import JobContext
from .errors import JobCancelled, OutlastError
from .outcome import Outcome, awaited, bound, called, uninterrupted
from .processes import Processes

log = logging.getLogger("outlast")


class NotBegun(OutlastError):
    """The handler was not called: this worker has no room for it at the moment."""


class Runner:
    """One attempt."""

    def __init__(self, task: Optional[Task[Any, Any]], job: JobContext) -> None:
        self.task, self.job = task, job
        #: When it was asked to end.
        self.stopped: Optional[float] = None

    def perform(self) -> Outcome:
        raise NotImplementedError

    def stop(self, reason: str) -> None:
        if self.stopped is None:
            self.stopped = now()
        self.job.stop(reason)
        self.interrupt()

    def interrupt(self) -> None:
        """Ends what the handler does, once it was stopped; where not at once, called again."""

    def kill(self) -> bool:
        """Ends it for certain; returns whether that is possible."""
        return False


class InThread(Runner):
    """In the thread that calls `perform`; a stop raises `JobCancelled` there."""

    def __init__(self, task: Optional[Task[Any, Any]], job: JobContext) -> None:
        super().__init__(task, job)
        self._lock = threading.Lock()
        self._thread: Optional[int] = None
        self._is_raised = False

    def perform(self) -> Outcome:
        call = bound(self.task, self.job)
        if isinstance(call, Outcome):
            return call
        context.enter(self.job)

        def perform() -> Outcome:
            with self._lock:
                self._thread = threading.get_ident()
                # It may have been stopped before it began.
                self._is_raised = self.job.cancelled.is_set()
            if self._is_raised:
                self.job.raise_if_cancelled()
            return called(call, self.job)

        return uninterrupted(perform, self._close, self.job)

    def _close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None and capi is not None:
                capi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)

    def interrupt(self) -> None:
        with self._lock:
            if self._thread is not None and not self._is_raised:
                self._is_raised = raise_in_thread(self._thread, JobCancelled)


#: Elsewhere than in CPython a handler has to look at `current_job().cancelled`.
capi = getattr(ctypes, "pythonapi", None)


def raise_in_thread(thread: int, error: type) -> bool:
    """Raises an exception in a thread at its next step in Python, unless it logs just now.

    Returns whether it did. Between taking a lock of `logging` and the `try` that gives it back,
    an exception would leave it taken forever (before Python 3.13), and all threads log.
    """
    if capi is None:
        return True
    # All of this is one step for Python: the thread cannot go on between the look and the raise.
    looks = map(operator.itemgetter(thread), iter(sys._current_frames, None))
    steps = itertools.chain(itertools.islice(looks, 1), itertools.repeat("f_back"))
    frames = itertools.takewhile(bool, itertools.accumulate(steps, getattr))
    logs = map(logging.__file__.__eq__, map(operator.attrgetter("f_code.co_filename"), frames))
    what = [ctypes.c_ulong(thread)], [ctypes.py_object(error)]
    raises = map(capi.PyThreadState_SetAsyncExc, *what)
    # What is true first: that it logs, or in how many threads the exception was raised.
    return next(filter(None, itertools.chain(logs, raises)), True) is not True


class Loop:
    """An event loop in a thread of its own, for all handlers that are coroutines."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="outlast-loop", daemon=True).start()

    def run(self, coroutine: Coroutine[Any, Any, Outcome]) -> "asyncio.Task[Outcome]":
        made: "list[asyncio.Task[Outcome]]" = []
        there = threading.Event()

        def make() -> None:
            made.append(self._loop.create_task(coroutine))
            there.set()

        self._loop.call_soon_threadsafe(make)
        there.wait()
        return made[0]

    def soon(self, call: Callable[[], Any]) -> None:
        self._loop.call_soon_threadsafe(call)


class InLoop(Runner):
    """On the event loop; a stop cancels its task."""

    def __init__(self, task: Optional[Task[Any, Any]], job: JobContext, loop: Loop) -> None:
        super().__init__(task, job)
        self._loop = loop
        self._lock = threading.Lock()
        self._made: "Optional[asyncio.Task[Outcome]]" = None
        self._is_cancelled = False

    def perform(self) -> Outcome:
        call = bound(self.task, self.job)
        if isinstance(call, Outcome):
            return call
        ended = threading.Event()

        async def perform() -> Outcome:
            context.enter(self.job)
            return await awaited(call, self.job)

        made = self._made = self._loop.run(perform())
        self._loop.soon(lambda: made.add_done_callback(lambda _: ended.set()))
        if self.job.cancelled.is_set():
            self.interrupt()
        ended.wait()
        try:
            return made.result()
        except asyncio.CancelledError:
            # Before its first step.
            return called(self.job.raise_if_cancelled, self.job)

    def interrupt(self) -> None:
        with self._lock:
            # Once: what it awaits while it cleans up is not to be cancelled, too.
            if self._made is not None and not self._is_cancelled:
                self._is_cancelled = True
                self._loop.soon(self._made.cancel)


class InProcess(Runner):
    """In a process of its own; a stop is SIGTERM, which raises `JobCancelled` there."""

    def __init__(
        self, task: Optional[Task[Any, Any]], job: JobContext, raw: Any, processes: Processes
    ) -> None:
        super().__init__(task, job)
        self._raw, self._processes = raw, processes
        self._lock = threading.Lock()
        self._child: Any = None
        self._is_killed = False

    def perform(self) -> Outcome:
        try:
            child = self._processes.take()
        # `RuntimeError`: no thread can be started.
        except (OutlastError, OSError, RuntimeError) as error:
            raise NotBegun(str(error)) from error
        with self._lock:
            # A stop before this is sent with the job, one after it by itself.
            child.begin(self._raw, self.job.stop_reason)
            self._child = child
            if self._is_killed:
                child.kill()
        outcome = child.outcome(self.job)
        with self._lock:
            self._child = None
        self._processes.give_back(child)
        return outcome

    def stop(self, reason: str) -> None:
        was_stopped = self.job.cancelled.is_set()
        super().stop(reason)
        with self._lock:
            if self._child is not None and not was_stopped:
                self._child.stop(reason)

    def kill(self) -> bool:
        with self._lock:
            self._is_killed = True
            if self._child is not None:
                self._child.kill()
        return True
