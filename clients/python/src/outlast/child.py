"""The process of handlers: its other side is `processes`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from typing import Any, BinaryIO, List, Optional

from . import app as apps
from . import checkpoints, context, signals
from .context import JobContext
from .errors import JobCancelled, OutlastError
from .outcome import Outcome, awaited, bound, called, uninterrupted


class Handlers:
    def __init__(self, app: apps.Outlast, answers: int) -> None:
        self.app, self._answers = app, answers
        self._kept = checkpoints.Checkpoints(app.client)
        self._main = threading.main_thread().ident or 0
        # Between a job's beginning and its end, and until the stop was raised in it.
        self._may_raise = False
        self._latest: Optional[JobContext] = None

    def accept(self, fetched: Any, stopped: Optional[str]) -> JobContext:
        """The job that runs next: it can be stopped from now on."""
        job = JobContext(fetched, self._kept.store, self._kept.load)
        if stopped is not None:
            job.stop(stopped)
        self._latest = job
        return job

    def stop(self, reason: str) -> None:
        if self._latest is not None:
            self._latest.stop(reason)
            # Also ends what the main thread waits for.
            signal.pthread_kill(self._main, signal.SIGTERM)

    def on_term(self, *_signal: Any) -> None:
        """Raises in the handler if the worker wants it to stop.

        A supervisor may send SIGTERM to all processes of a service: that is for the worker only.
        """
        if self._may_raise and self._latest is not None and self._latest.cancelled.is_set():
            self._may_raise = False
            raise JobCancelled(self._latest.stop_reason or "cancelled")

    def run(self, job: JobContext) -> Outcome:
        task = self.app.tasks.get(job.type)
        call = bound(task, job)
        if isinstance(call, Outcome):
            return call
        is_async = task is not None and task.is_async

        def perform() -> Outcome:
            self._may_raise = True
            # It may have been stopped before it began.
            job.raise_if_cancelled()
            if is_async:
                return asyncio.run(awaited(call, job))
            return called(call, job)

        context.enter(job)
        outcome = uninterrupted(perform, self._close, job)
        context.enter(None)
        return outcome

    def _close(self) -> None:
        self._may_raise = False

    def answer(self, value: Any) -> None:
        data = json.dumps(value).encode() + b"\n"
        while data:
            data = data[os.write(self._answers, data) :]


def main(orders: int, answers: int, reference: str, server: str) -> None:
    def ignore(*_signal: Any) -> None:
        """Unlike SIG_IGN, it is not passed on to programs that are started."""

    signals.catch({signal.SIGTERM: ignore, signal.SIGINT: ignore})
    os.set_inheritable(orders, False)
    os.set_inheritable(answers, False)
    wanted: List[JobContext] = []
    changed = threading.Condition()

    def listen(stream: BinaryIO) -> None:
        for line in stream:
            order = json.loads(line)
            if "stop" in order:
                handlers.stop(order["stop"])
                continue
            with changed:
                wanted.append(handlers.accept(order["run"], order["stopped"]))
                changed.notify()
        # The worker has gone: its job runs elsewhere, so it must not go on here.
        os.killpg(0, signal.SIGKILL)

    # It may go while the program is loaded.
    threading.Thread(target=listen, args=[os.fdopen(orders, "rb")], daemon=True).start()
    try:
        app = apps.load(reference)
    except OutlastError as error:
        raise SystemExit(f"outlast: {error}") from error
    app.at(server)
    handlers = Handlers(app, answers)
    signal.signal(signal.SIGTERM, handlers.on_term)
    handlers.answer({"ready": True})
    while True:
        with changed:
            while not wanted:
                changed.wait()
            job = wanted.pop()
        outcome = handlers.run(job)
        handlers.answer({"done": {"path": outcome.path, "fields": outcome.fields}})
