"""Processes that run handlers: started when they are needed, one job at a time, used again.

    worker ──{"run": job}──▶ process ──▶ handler        one JSON document a line, on pipes
           ──{"stop": why}─▶ (its main thread gets SIGTERM)
           ◀─{"done": …}────
           ──(pipe closed)─▶ the process ends: its worker is gone

Each is the leader of a session of its own. It is killed with everything that it has started.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from typing import Any, List, Mapping, Optional

from .context import JobContext
from .errors import OutlastError
from .outcome import Outcome, failed, stopped

log = logging.getLogger("outlast")

#: Longest that a process may take to load the program.
START_MAX = 60.0


def python(code: str) -> List[str]:
    """A command line that runs `code` with the modules of this program."""
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"]


class Child:
    """One process."""

    def __init__(self, reference: str, server: str) -> None:
        self._lock, self._ending = threading.Lock(), threading.Lock()
        self.jobs = 0
        orders, self._orders = os.pipe()
        theirs, ours = [orders], [self._orders]
        try:
            answers, answer = os.pipe()
            theirs.append(answer)
            ours.append(answers)
            code = (
                "from outlast.child import main;"
                f" main({orders}, {answer}, {reference!r}, {server!r})"
            )
            self.process = subprocess.Popen(
                python(code),
                stdin=subprocess.DEVNULL,
                pass_fds=(orders, answer),
                start_new_session=True,
            )
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._answers = os.fdopen(answers, "rb")
        try:
            threading.Thread(target=self._watch, name="outlast-end", daemon=True).start()
            too_long = threading.Timer(START_MAX, self.kill)
            too_long.daemon = True
            too_long.start()
            is_ready = self._read() == {"ready": True}
            too_long.cancel()
        except BaseException:
            self.close()
            raise
        if not is_ready:
            self.close()
            raise OutlastError(f"a process for handlers did not start: {self.end()}")

    def _read(self) -> Any:
        line = self._answers.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def _write(self, order: Mapping[str, Any]) -> None:
        data = json.dumps(order).encode() + b"\n"
        try:
            with self._lock:
                while data:
                    data = data[os.write(self._orders, data) :]
        except OSError:
            # It has ended, which `outcome` notices.
            pass

    def begin(self, fetched: Mapping[str, Any], stop_reason: Optional[str]) -> None:
        """Runs a job, which may have been stopped already."""
        self.jobs += 1
        self._write({"run": fetched, "stopped": stop_reason})

    def outcome(self, job: JobContext) -> Outcome:
        """Waits for the end of the job, or of the process."""
        answer = self._read()
        if answer is not None:
            return Outcome(answer["done"]["path"], answer["done"]["fields"])
        self._end()
        if job.stop_reason is not None:
            return stopped(job)
        return failed("process_died", f"the process of the handler has died: {self.end()}")

    def stop(self, reason: str) -> None:
        self._write({"stop": reason})

    def kill(self) -> None:
        """Kills it, and what it has started."""
        with self._ending:
            # Once it was waited for, its id may be another's.
            if self.process.returncode is None:
                try:
                    os.killpg(self.process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def _has_ended(self, options: int) -> bool:
        """Leaves it to be waited for, so that `kill` still reaches what it has started."""
        try:
            found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT | options)
        except ChildProcessError:
            return True
        return found is not None

    def _watch(self) -> None:
        """Ends what it has forked with it, which would keep its pipe open."""
        self._has_ended(0)
        self.kill()

    def _end(self) -> None:
        """Kills it, and waits for its end."""
        self.kill()
        self._has_ended(0)
        with self._ending:
            self.process.wait()

    def close(self) -> None:
        """Lets it end: it has no job."""
        self._end()
        self._answers.close()
        with self._lock:
            if self._orders >= 0:
                os.close(self._orders)
                self._orders = -1

    def end(self) -> str:
        code = self.process.poll()
        if code is None:
            return "it runs"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    @property
    def is_usable(self) -> bool:
        return not self._has_ended(os.WNOHANG)


class Processes:
    """Those that run nothing at the moment."""

    def __init__(self, reference: str, server: str, jobs_per_process: Optional[int]) -> None:
        self._reference, self._server, self._jobs = reference, server, jobs_per_process
        self._lock = threading.Lock()
        self._idle: List[Child] = []
        self._is_closed = False

    def take(self) -> Child:
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is None:
                return Child(self._reference, self._server)
            if child.is_usable:
                return child
            child.close()

    def give_back(self, child: Child) -> None:
        is_worn = self._jobs is not None and child.jobs >= self._jobs
        with self._lock:
            is_kept = not self._is_closed and not is_worn and child.is_usable
            if is_kept:
                self._idle.append(child)
        if not is_kept:
            child.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self._is_closed = self._idle, [], True
        for child in idle:
            child.close()
