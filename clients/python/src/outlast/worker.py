"""A worker: fetches jobs, runs their handlers, beats, and ends without losing one.

    running ──SIGTERM, an order──▶ draining ──none runs──▶ goodbye, exit code 0
       │ ▲                            │
     quiet order, SIGTSTP             └─ grace over, 2nd SIGTERM ─▶ stopping ─▶ killed, handed back
       ▼ │                                                          (3rd SIGTERM: exit code 1)
      quiet ──resume, SIGCONT

Three threads never wait for a handler: the main one keeps the times, one beats, one fetches. Each
attempt has a thread, which also reports its end. It takes no more jobs than it has slots.
"""

from __future__ import annotations

import logging
import os
import random
import re
import signal
import socket
import threading
import uuid
from typing import Any, Dict, List, Mapping, Optional, Sequence

from . import app as apps
from . import signals
from .backoff import Backoff, now
from .checkpoints import Checkpoints
from .context import JobContext, waited
from .errors import OutlastError, Refused, UsageError
from .handback import hand_back_and_exit, is_final
from .options import Duration, seconds
from .outcome import Outcome, failed, handed_back, refused, stopped
from .processes import Processes
from .runners import InLoop, InProcess, InThread, Loop, NotBegun, Runner
from .transport import Transport, Unanswered, encode

log = logging.getLogger("outlast")

FETCH = "/ojs/v1/workers/fetch"
BEAT = "/ojs/v1/workers/heartbeat"
NACK = "/ojs/v1/workers/nack"
#: Where the environment says how long jobs may go on after SIGTERM. Two are the standard's.
GRACE = ("OUTLAST_GRACE", "OJS_GRACE_PERIOD", "OJS_SHUTDOWN_GRACE_PERIOD")
#: Most jobs of one fetch, and longest that a server lets it wait for one.
FETCH_MAX, FETCH_WAIT = 1000, 10.0
#: Pause after an empty answer of a server that does not wait for jobs.
POLL_PAUSE = 1.0
#: How often the main thread looks at its times.
TICK = 0.05
#: The parts of a lease after which handlers are stopped for want of a server, and ended.
PATIENCE, PATIENCE_MAX = 0.7, 0.9
#: How long handlers have after a second SIGTERM.
FORCED_WINDOW = 0.5
#: How long the last fetch of a drain is waited for, and what it may bring.
LAST_FETCH = 1.0
#: How long the last reports may take after the last handler had to end.
REPORT_WINDOW = 5.0
#: How long a server's own error may answer the same report.
ERROR_PATIENCE = 300.0
#: First and longest pause after a job that could not begin, and how long pauses are remembered.
PAUSE, PAUSE_MAX, PAUSE_MEMORY = 0.5, 10.0, 60.0
#: A report of more bytes is given up when so many tries were not answered, but heartbeats were.
UNREAD_MAX, BODY_LARGE = 3, 1 << 20


class Attempt:
    """One claim of a job."""

    def __init__(self, fetched: Mapping[str, Any], runner: Runner) -> None:
        self.raw, self.runner, self.job = fetched, runner, runner.job
        #: Its time limit counts from then on.
        self.began: Optional[float] = None
        #: Set when the handler has ended: what is left is the report.
        self.performed = threading.Event()
        self.outcome: Optional[Outcome] = None
        #: Earlier claims of the same job that have not been reported.
        self.before: List[Attempt] = []

    def about(self, worker: str) -> Dict[str, Any]:
        return about(self.raw, worker)


def about(fetched: Mapping[str, Any], worker: str) -> Dict[str, Any]:
    """What a report says of the attempt, so that one of an older claim is refused."""
    claim = {name: fetched[name] for name in ("attempt", "lease") if fetched.get(name) is not None}
    return {"job_id": fetched["id"], "worker_id": worker, **claim}


def unending(attempts: Sequence[Attempt]) -> List[Attempt]:
    """Kills those that can be killed, and returns the others that still run."""
    return [it for it in attempts if not it.performed.is_set() and not it.runner.kill()]


class Worker:
    """Runs the handlers of an app.

    `lease` is what `ojs.lease` of the server is. `grace` is how long jobs may go on after SIGTERM,
    and `stop_window` how long a handler may take to end when it is stopped; the supervisor must
    wait for longer than both of them together and ten seconds. For `no_handler_window` after a job
    was due, it is left to others if it has no handler here: in a deploy they may know its type.
    """

    def __init__(
        self,
        app: apps.Outlast,
        *,
        concurrency: int = 10,
        queues: Optional[Sequence[str]] = None,
        run_in: str = "thread",
        name: Optional[str] = None,
        lease: Optional[Duration] = None,
        grace: Optional[Duration] = None,
        stop_window: Duration = 5.0,
        no_handler_window: Duration = 300.0,
        jobs_per_process: Optional[int] = None,
        reference: Optional[str] = None,
    ) -> None:
        if not 1 <= concurrency <= 10_000:
            raise UsageError("`concurrency` is from 1 to 10000")
        if run_in not in apps.PLACES:
            raise UsageError(f"`run_in` is one of {', '.join(apps.PLACES)}, not {run_in!r}")
        if not app.tasks:
            raise UsageError("there is no handler: write one with @app.job(TYPE)")
        self.app, self.concurrency, self.run_in = app, concurrency, run_in
        self.queues = list(queues) if queues else app.queues()
        self.host = socket.gethostname()
        # Each process is a worker of its own.
        self.id = f"{name or self.host}-{uuid.uuid4()}"
        self.lease = setting(30.0, "OUTLAST_LEASE") if lease is None else seconds(lease)
        self.grace = setting(30.0, *GRACE) if grace is None else seconds(grace)
        self.stop_window = seconds(stop_window)
        self.no_handler_window = seconds(no_handler_window)
        if self.lease < 1:
            raise UsageError("`lease` is at least a second")
        self._transport = Transport(app.client._transport.settings)
        self._kept = Checkpoints(app.client)
        self._loop: Optional[Loop] = None
        self._processes: Optional[Processes] = None
        if run_in == "process" or any(it.run_in == "process" for it in app.tasks.values()):
            server = ",".join(app.client._transport.settings.servers)
            self._processes = Processes(
                reference or apps.reference_of_main(), server, jobs_per_process
            )
        self._changed = threading.Condition()
        self._running: List[Attempt] = []
        self._signals = 0
        self._was_ordered_to_end = False
        self._is_draining = False
        self._is_quiet = self._was_ordered_quiet = False
        self._beat_wanted = threading.Event()
        # A signal has something to tell with the next heartbeat.
        self._has_news = False
        self._beat_lock = threading.Lock()
        self._is_over = threading.Event()
        self._fetch_has_ended = threading.Event()
        # Jobs are fetched once the server knows the worker.
        self._is_known = False
        # When the latest heartbeat that was answered was sent.
        self._answered = now()
        # Since when there is no server, as far as is known.
        self._cut_off: Optional[float] = None
        # No jobs are fetched before.
        self._fetches_at = 0.0
        self._pauses = Backoff(PAUSE, PAUSE_MAX)

    # The main thread: times and signals.

    def run(self) -> int:
        """Runs until a signal or an order stops it and nothing runs; returns the exit code."""
        if not logging.getLogger().handlers:
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        restore = self._catch_signals()
        try:
            if self._processes is not None:
                self._load(self._processes)
            log.info("worker %s takes jobs from %s", self.id, ", ".join(self.queues))
            for target in (self._beats, self._fetches):
                threading.Thread(target=target, name="outlast", daemon=True).start()
            return self._work()
        finally:
            self._is_over.set()
            self._beat_wanted.set()
            if self._processes is not None:
                self._processes.close()
            restore()

    def stop(self) -> None:
        """Drains the worker, as SIGTERM does. Called again, it ends the grace."""
        self._signals += 1

    def _catch_signals(self) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return lambda: None

        def on_stop(*_signal: Any) -> None:
            self.stop()
            if self._signals > 2:
                os._exit(1)

        def on_quiet(number: int, _frame: Any) -> None:
            # No lock is taken here: what the signal interrupts may hold it.
            self._is_quiet = number == signal.SIGTSTP
            self._has_news = True

        return signals.catch(
            {
                signal.SIGTERM: on_stop,
                signal.SIGINT: on_stop,
                signal.SIGTSTP: on_quiet,
                signal.SIGCONT: on_quiet,
            }
        )

    def _load(self, processes: Processes) -> None:
        """Starts a process: that a program cannot be loaded is known before the first job."""
        errors: List[BaseException] = []

        def load() -> None:
            try:
                processes.give_back(processes.take())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=load, name="outlast-load", daemon=True)
        thread.start()
        # A signal does not wait for it.
        while thread.is_alive() and not self._signals:
            thread.join(TICK)
        if errors:
            raise errors[0]

    def _work(self) -> int:
        grace_ends = stops_end = reports_end = float("inf")
        while True:
            with self._changed:
                self._changed.wait(TICK)
                attempts = list(self._running)
            time = now()
            if self._keep_times(attempts, time):
                return self._hand_back(1)
            if self._has_news:
                self._has_news = False
                self._beat_wanted.set()
            if (self._signals or self._was_ordered_to_end) and not self._is_draining:
                log.info("draining: %d jobs run, for %g s at most", len(attempts), self.grace)
                self._is_draining = True
                self._beat_wanted.set()
                grace_ends = time + self.grace
                # What began meanwhile is seen the next time.
                continue
            if self._signals > 1:
                grace_ends = min(grace_ends, time)
                self.stop_window = min(self.stop_window, FORCED_WINDOW)
                if stops_end < float("inf"):
                    stops_end = min(stops_end, time + FORCED_WINDOW)
            if not self._is_draining:
                continue
            if not attempts:
                return self._leave()
            if stops_end == float("inf") and time >= grace_ends:
                log.info("stopping what runs")
                stops_end = time + self.stop_window
                for attempt in attempts:
                    attempt.runner.stop("shutdown")
            if reports_end == float("inf") and time >= stops_end:
                reports_end = time + REPORT_WINDOW
                if unending(attempts):
                    return self._hand_back()
            if time >= reports_end:
                if not all(attempt.performed.is_set() for attempt in attempts):
                    # It waits for a process that still loads its program.
                    return self._hand_back()
                log.error(
                    "%d jobs are left: they run elsewhere when the lease is over", len(attempts)
                )
                return 1

    def _keep_times(self, attempts: Sequence[Attempt], time: float) -> bool:
        """Stops and kills handlers. Returns whether one only ends with this process."""
        for attempt in attempts:
            timeout, stopped = attempt.job.timeout, attempt.runner.stopped
            if stopped is not None:
                attempt.runner.interrupt()
                # What does not end by itself is killed where that is possible.
                if time > stopped + self.stop_window:
                    attempt.runner.kill()
            elif timeout and attempt.began is not None and time > attempt.began + timeout:
                attempt.runner.stop("timeout")
        if time <= self._answered + PATIENCE * self.lease:
            self._cut_off = None
            return False
        if self._cut_off is None:
            self._cut_off = time
            if attempts:
                log.warning("no server: jobs are stopped, as they may soon run elsewhere")
        for attempt in attempts:
            if attempt.runner.stopped is None:
                attempt.runner.stop("lost")
        # Not by the lease alone: a machine that wakes up finds its server again.
        if time <= self._cut_off + (PATIENCE_MAX - PATIENCE) * self.lease:
            return False
        return len(unending(attempts)) > 0

    def _leave(self) -> int:
        """Says goodbye: jobs that came at the last moment run elsewhere at once."""
        self._fetch_has_ended.wait(LAST_FETCH)
        with self._changed:
            # What the last fetch has brought is handed back by its own report.
            self._changed.wait_for(lambda: not self._running, LAST_FETCH)
        self._is_over.set()
        try:
            # After all others.
            with self._beat_lock:
                self._beat("terminated")
        except OutlastError as error:
            # The word is Outlast's own; its lease says the same, later.
            log.debug("no goodbye: %s", error)
        log.info("ended")
        return 0

    def _hand_back(self, code: int = 0) -> int:
        """Hands back jobs whose handlers do not end, together with the process that runs them.

        What other handlers have come to is reported as well: nothing else of this process is left.
        `code` is the exit code when all was.
        """
        log.warning("handlers do not end: the process ends with them")
        with self._changed:
            attempts = list(self._running)
        reports = []
        for attempt in attempts:
            outcome = attempt.outcome or stopped(attempt.job)
            reports.append((outcome.path, {**attempt.about(self.id), **outcome.fields}))
        return hand_back_and_exit(self._transport.settings, self.id, reports, code)

    # Heartbeats.

    def _beats(self) -> None:
        backoff = Backoff(min(0.2, self.lease / 12), self.lease / 12)
        while not self._is_over.is_set():
            self._beat_wanted.clear()
            try:
                with self._beat_lock:
                    if self._is_over.is_set():
                        return
                    self._beat("terminate" if self._is_draining else self._own_state())
                backoff.reset()
                pause = self.lease / 6 * random.uniform(0.9, 1.0)
            except OutlastError as error:
                log.warning("no heartbeat: %s", error)
                pause = backoff.pause()
            except Exception:
                # Without beats all is lost; with one less, nothing.
                log.exception("no heartbeat")
                pause = backoff.pause()
            self._beat_wanted.wait(pause)

    def _own_state(self) -> str:
        return "quiet" if self._is_quiet else "running"

    def _beat(self, state: str) -> None:
        """Says that the worker lives and what it runs, and does what the server answers."""
        with self._changed:
            attempts = list(self._running)
        sent = now()
        body = {
            "worker_id": self.id,
            "state": state,
            "active_jobs": list(dict.fromkeys(attempt.job.id for attempt in attempts)),
            "queues": self.queues,
            "concurrency": self.concurrency,
            "hostname": self.host,
        }
        answer = self._transport.once("POST", BEAT, encode(body), timeout=self.lease / 6) or {}
        self._answered = max(self._answered, sent)
        # Cancelled, or not this worker's any more.
        stale = set(answer.get("stale_jobs") or [])
        for attempt in attempts:
            if attempt.job.id in stale and not attempt.performed.is_set():
                log.info("job %s is stopped: it was cancelled or runs elsewhere", attempt.job.id)
                attempt.runner.stop("cancelled")
        ordered = answer.get("state")
        if ordered == "terminate" and not self._is_draining and state != "terminated":
            log.info("ordered to drain")
            self._was_ordered_to_end = True
        is_quiet = ordered == "quiet"
        if is_quiet != self._was_ordered_quiet:
            log.info("ordered to take no jobs" if is_quiet else "takes jobs again")
        with self._changed:
            self._was_ordered_quiet = is_quiet
            self._is_known = True
            self._changed.notify_all()

    # Jobs.

    def _fetches(self) -> None:
        backoff = Backoff(0.1, 5.0)
        try:
            while True:
                with self._changed:
                    while not (free := self._free()) and not self._is_draining:
                        self._changed.wait(TICK * 4)
                if self._is_draining:
                    return
                try:
                    self._fetch(free)
                    backoff.reset()
                except OutlastError as error:
                    log.warning("no jobs: %s", error)
                    asked = error.retry_after if isinstance(error, Refused) else None
                    self._is_over.wait(backoff.pause(asked))
                except Exception:
                    log.exception("no jobs")
                    self._is_over.wait(backoff.pause())
        finally:
            self._fetch_has_ended.set()

    def _free(self) -> int:
        if not self._is_known or self._is_quiet or self._was_ordered_quiet:
            return 0
        if self._cut_off is not None or now() < self._fetches_at:
            return 0
        return max(min(self.concurrency - len(self._running), FETCH_MAX), 0)

    def _pause(self) -> None:
        """Takes no jobs for a while, longer each time, so that others get what it hands back."""
        with self._changed:
            time = now()
            if time > self._fetches_at + PAUSE_MEMORY:
                self._pauses.reset()
            if time > self._fetches_at:
                self._fetches_at = time + self._pauses.pause()

    def _fetch(self, free: int) -> None:
        body = {
            "queues": self.queues,
            "count": free,
            "worker_id": self.id,
            "wait_ms": int(FETCH_WAIT * 1000),
            # Should the answer be lost, its jobs run elsewhere when this is over.
            "visibility_timeout_ms": int(self.lease * 1000),
        }
        asked = now()
        answer = self._transport.once("POST", FETCH, encode(body), timeout=FETCH_WAIT + 10) or {}
        jobs: List[Mapping[str, Any]] = answer.get("jobs") or []
        back: List[Mapping[str, Any]] = []
        for fetched in jobs:
            try:
                self._start(fetched)
            except Exception as error:
                log.error("job %s cannot begin: %s", fetched["id"], error)
                back.append(fetched)
        for fetched in back:
            body = {**about(fetched, self.id), "requeue": True}
            self._transport.once("POST", NACK, encode(body))
        if back:
            # So that the next fetch waits a moment.
            raise OutlastError(f"{len(back)} jobs could not begin")
        if not jobs and now() - asked < FETCH_WAIT / 2 and not self._is_draining:
            # A server that does not wait for jobs, or holds none for a worker that is quiet.
            self._is_over.wait(POLL_PAUSE * random.uniform(0.5, 1.0))

    def _start(self, fetched: Mapping[str, Any]) -> None:
        job = JobContext(fetched, self._kept.store, self._kept.load)
        attempt = Attempt(fetched, self._runner(fetched, job))
        with self._changed:
            # A claim after one that this worker has lost: two never run at the same time here.
            attempt.before = [it for it in self._running if it.job.id == job.id]
            self._running.append(attempt)
        try:
            for other in attempt.before:
                other.runner.stop("lost")
            threading.Thread(
                target=self._attempt, args=[attempt], name=f"outlast {job.id}", daemon=True
            ).start()
        except BaseException:
            # Its lease is not to be extended.
            self._end(attempt)
            raise

    def _runner(self, fetched: Mapping[str, Any], job: JobContext) -> Runner:
        task = self.app.tasks.get(job.type)
        place = (task.run_in if task is not None else None) or (
            "loop"
            if task is not None and task.is_async and self.run_in == "thread"
            else self.run_in
        )
        if place == "process" and self._processes is not None and task is not None:
            return InProcess(task, job, fetched, self._processes)
        if task is not None and task.is_async:
            self._loop = self._loop or Loop()
            return InLoop(task, job, self._loop)
        return InThread(task, job)

    def _attempt(self, attempt: Attempt) -> None:
        job = attempt.job
        try:
            end = now() + self.stop_window
            for other in attempt.before:
                other.performed.wait(max(end - now(), 0.0))
            attempt.began = now()
            if self._is_draining:
                # It came when the worker had begun to drain.
                outcome = handed_back()
            else:
                self._may_begin(attempt)
                outcome = attempt.runner.perform()
        except NotBegun as error:
            log.warning("job %s is left to other workers: %s", job.id, error)
            self._pause()
            outcome = handed_back()
        except OutlastError as error:
            outcome = failed("worker_error", str(error))
        except Exception as error:
            log.exception("job %s", job.id)
            outcome = failed("worker_error", f"{type(error).__name__}: {error}")
        attempt.outcome = outcome
        attempt.performed.set()
        took = now() - (attempt.began or now())
        log.info("job %s (%s): %s, %.2f s", job.id, job.type, outcome.text, took)
        try:
            self._report(attempt, outcome)
        finally:
            self._end(attempt)

    def _may_begin(self, attempt: Attempt) -> None:
        """Raises `NotBegun` if it cannot begin here for now."""
        if not all(other.performed.is_set() for other in attempt.before):
            raise NotBegun("its attempt before does not end here")
        is_new = waited(attempt.raw) < self.no_handler_window
        if is_new and attempt.job.type not in self.app.tasks:
            raise NotBegun(f"no handler for {attempt.job.type}")

    def _end(self, attempt: Attempt) -> None:
        with self._changed:
            self._running.remove(attempt)
            self._changed.notify_all()

    def _report(self, attempt: Attempt, outcome: Outcome) -> None:
        """Reports an end again and again, until a server has stored or refused it."""
        backoff, began = Backoff(0.1, 5.0), now()
        # Tries that were not answered while the server was there, and when the latest one failed.
        unread, unread_at = 0, began
        while not self._is_over.is_set():
            asked = None
            try:
                body = encode({**attempt.about(self.id), **outcome.fields})
                answer = self._transport.once("POST", f"/ojs/v1/workers/{outcome.path}", body)
                if (answer or {}).get("acknowledged") is False:
                    log.info("job %s was cancelled: nothing came of the attempt", attempt.job.id)
                return
            except Refused as error:
                instead = refused(outcome, str(error)) if error.status in (400, 413, 422) else None
                if instead is not None:
                    outcome = attempt.outcome = instead
                    continue
                if error.status == 409:
                    log.info("job %s is not this worker's any more: %s", attempt.job.id, error)
                    return
                if is_final(error) or now() - began > ERROR_PATIENCE:
                    log.error("job %s: the report is refused: %s", attempt.job.id, error)
                    return
                asked = error.retry_after
            except Unanswered as error:
                log.debug("job %s: no report yet: %s", attempt.job.id, error)
                if error.sent and len(body) > BODY_LARGE and self._answered > unread_at:
                    unread, unread_at = unread + 1, now()
                if unread == UNREAD_MAX:
                    # Servers may close the connection on what is too long, and are not heard then.
                    text = f"the report of {len(body)} bytes is not answered: {error}"
                    outcome = attempt.outcome = refused(outcome, text) or outcome
                    unread = 0
            except OutlastError as error:
                log.debug("job %s: no report yet: %s", attempt.job.id, error)
            self._is_over.wait(backoff.pause(asked))


#: Units of lengths of time in the environment, in seconds, as the server and its workers have them.
UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def setting(default: float, *names: str) -> float:
    """What the environment says; the first of these names that is there counts."""
    for name in names:
        text = os.environ.get(name)
        if text:
            found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|[smhd]?)", text)
            if found is None:
                raise UsageError(f"{name} is a number of seconds, 500ms, 30s or 5m, not {text!r}")
            return float(found[1]) * UNITS[found[2]]
    return default
