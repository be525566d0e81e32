"""Handlers are run and stopped: real threads, event loops and processes."""

import asyncio
import io
import logging
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

from outlast import JobCancelled, Outlast, Permanent
from outlast.context import JobContext
from outlast.processes import Child, Processes
from outlast.runners import InLoop, InProcess, InThread, Loop

from . import handlers

ROOT = pathlib.Path(__file__).resolve().parent.parent


def context(type, *args, **more):
    fetched = {"id": "j", "type": type, "args": list(args), "lease": "1", **more}
    return JobContext(fetched, lambda *_: False, lambda _: None)


def task(function):
    return Outlast("http://127.0.0.1:9").job("t")(function)


def stopped_soon(runner, reason="shutdown", after=0.2):
    threading.Timer(after, runner.stop, [reason]).start()
    began = time.monotonic()
    outcome = runner.perform()
    return outcome, time.monotonic() - began


class InThreads(unittest.TestCase):
    def test_results_and_errors_are_reported(self):
        self.assertEqual(InThread(task(lambda: 7), context("t")).perform().fields, {"result": 7})

        def fails():
            raise KeyError("x")

        def gives_up():
            raise Permanent("never", type="bad")

        for function, type, retryable in (
            (fails, "KeyError", True),
            (gives_up, "bad", False),
            (lambda: object(), "invalid_result", False),
            (lambda: float("nan"), "invalid_result", False),
            (lambda: sys.exit(3), "SystemExit", True),
        ):
            error = InThread(task(function), context("t")).perform().fields["error"]
            self.assertEqual((error["type"], error["retryable"]), (type, retryable))
        unknown = InThread(None, context("t")).perform().fields["error"]
        self.assertEqual(unknown["type"], "no_handler")
        wrong = InThread(task(lambda: 7), context("t", 1)).perform().fields["error"]
        self.assertEqual(wrong["type"], "invalid_args")

    def test_a_handler_that_computes_is_stopped_by_an_exception(self):
        def spin():
            while True:
                try:
                    sum(range(100))
                except Exception:
                    pass

        outcome, took = stopped_soon(InThread(task(spin), context("t")))
        self.assertEqual(outcome.fields["error"]["type"], "shutdown")
        self.assertLess(took, 5)

    def test_a_stop_at_any_moment_hits_the_handler_or_nothing(self):
        """Not the code around it, and not the next job of the same thread."""
        for round in range(300):
            runner = InThread(task(lambda: sum(range(2000))), context("t"))
            stopper = threading.Thread(target=runner.stop, args=["cancelled"])
            stopper.start()
            outcome = runner.perform()
            stopper.join()
            said = outcome.fields.get("result", (outcome.fields.get("error") or {}).get("type"))
            self.assertIn(said, (sum(range(2000)), "shutdown"), round)
            self.assertEqual(sum(range(500)), 124750)

    def test_a_handler_that_logs_is_stopped_once_it_has_given_back_the_lock(self):
        handler = logging.StreamHandler(io.StringIO())
        logger = logging.Logger("busy")
        logger.addHandler(handler)
        logs = threading.Event()

        def spin():
            logs.set()
            logger.error("said once the lock is free")
            while True:
                sum(range(100))

        runner = InThread(task(spin), context("t"))
        done = []
        with handler.lock:
            thread = threading.Thread(target=lambda: done.append(runner.perform()))
            thread.start()
            logs.wait()
            time.sleep(0.2)
            runner.stop("shutdown")
        wait_for(lambda: runner.interrupt() or done)
        thread.join()
        self.assertEqual(done[0].fields["error"]["type"], "shutdown")
        self.assertTrue(handler.lock.acquire(timeout=1), "a thread that is gone holds the lock")

    def test_a_handler_that_was_stopped_while_it_waited_may_be_stopped_again(self):
        job = context("t")
        runner = InThread(task(lambda: None), job)
        runner.stop("cancelled")
        with job.cancelled._cond:
            again = threading.Thread(target=runner.stop, args=["shutdown"], daemon=True)
            again.start()
            again.join(5)
            self.assertFalse(again.is_alive())

    def test_a_stop_before_the_beginning_keeps_it_from_beginning(self):
        began = []
        runner = InThread(task(lambda: began.append(1)), context("t"))
        runner.stop("lost")
        self.assertEqual(runner.perform().fields["error"]["type"], "shutdown")
        self.assertEqual(began, [])

    def test_a_timeout_is_one_and_costs_a_retry(self):
        def waits():
            from outlast import current_job

            current_job().sleep(30)

        outcome, took = stopped_soon(InThread(task(waits), context("t", timeout_ms=100)), "timeout")
        self.assertEqual(outcome.fields["error"]["type"], "timeout")
        self.assertLess(took, 5)

    def test_what_a_stopped_handler_raises_is_the_stop(self):
        def cleans_up_badly():
            try:
                while True:
                    time.sleep(0.01)
            except JobCancelled:
                raise ValueError("while cleaning up") from None

        outcome, _took = stopped_soon(InThread(task(cleans_up_badly), context("t")))
        self.assertEqual(outcome.fields["error"]["type"], "shutdown")


class OnALoop(unittest.TestCase):
    def test_coroutines_run_next_to_each_other_and_are_cancelled(self):
        loop = Loop()

        async def naps(seconds):
            await asyncio.sleep(seconds)
            return seconds

        done = InLoop(task(naps), context("t", 0.01), loop).perform()
        self.assertEqual(done.fields, {"result": 0.01})
        outcome, took = stopped_soon(InLoop(task(naps), context("t", 60), loop))
        self.assertEqual(outcome.fields["error"]["type"], "shutdown")
        self.assertLess(took, 5)
        early = InLoop(task(naps), context("t", 60), loop)
        early.stop("cancelled")
        self.assertEqual(early.perform().fields["error"]["type"], "shutdown")


    def test_a_coroutine_is_cancelled_once_and_cleans_up(self):
        began, cleaned = threading.Event(), []

        async def cleans_up():
            try:
                began.set()
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.3)
                cleaned.append(True)

        runner = InLoop(task(cleans_up), context("t"), Loop())

        def stops():
            began.wait()
            for _beat in range(3):
                runner.stop("cancelled")
                time.sleep(0.05)

        stopper = threading.Thread(target=stops)
        stopper.start()
        self.assertEqual(runner.perform().fields["error"]["type"], "shutdown")
        stopper.join()
        self.assertEqual(cleaned, [True])


class InProcesses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.processes = Processes("tests.handlers:app", "http://127.0.0.1:9", None)

    @classmethod
    def tearDownClass(cls):
        cls.processes.close()

    def runner(self, type, *args):
        raw = {"id": "j", "type": type, "args": list(args), "lease": "1"}
        return InProcess(handlers.app.tasks[type], context(type, *args), raw, self.processes)

    def test_a_process_runs_one_job_after_another(self):
        self.assertEqual(self.runner("add", 1).perform().fields, {"result": 3})
        pids = {self.runner("pid").perform().fields["result"] for _ in range(3)}
        self.assertEqual(len(pids), 1)
        self.assertNotEqual(pids, {os.getpid()})
        self.assertEqual(self.runner("sleep.async", 0).perform().fields, {"result": "j"})

    def test_sigterm_ends_what_waits_and_the_process_goes_on(self):
        before = self.runner("pid").perform().fields["result"]
        for type in ("sleep", "sleep.async"):
            outcome, took = stopped_soon(self.runner(type, 60))
            self.assertEqual(outcome.fields["error"]["type"], "shutdown")
            self.assertLess(took, 10)
        early = self.runner("sleep", 60)
        early.stop("cancelled")
        self.assertEqual(early.perform().fields["error"]["type"], "shutdown")
        self.assertEqual(self.runner("pid").perform().fields["result"], before)

    def test_a_signal_of_others_is_not_for_the_handler(self):
        pid = self.runner("pid").perform().fields["result"]
        threading.Timer(0.2, os.kill, [pid, signal.SIGTERM]).start()
        self.assertEqual(self.runner("sleep", 0.6).perform().fields, {"result": None})

    def test_a_deaf_handler_is_killed_with_what_it_has_started(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "helper"
            runner = self.runner("deaf", str(path))
            done = []
            thread = threading.Thread(target=lambda: done.append(runner.perform()))
            thread.start()
            wait_for(lambda: path.exists() and path.read_text().endswith("\n"))
            helper = int(path.read_text())
            runner.stop("shutdown")
            time.sleep(0.3)
            self.assertEqual(done, [])
            self.assertTrue(runner.kill())
            thread.join(10)
            self.assertEqual(done[0].fields["error"]["type"], "shutdown")
            wait_for(lambda: has_ended(helper))

    def test_what_a_handler_has_started_dies_with_its_process(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "helper"
            child = self.processes.take()
            child.begin({"id": "j", "type": "die", "args": [str(path)]}, None)
            wait_for(lambda: has_ended(child.process.pid))
            error = child.outcome(context("die")).fields["error"]
            self.assertEqual(error["type"], "process_died")
            child.close()
            wait_for(lambda: has_ended(int(path.read_text())))

    def test_a_process_that_dies_is_a_failure_and_is_replaced(self):
        error = self.runner("die").perform().fields["error"]
        self.assertEqual((error["type"], error["retryable"]), ("process_died", True))
        self.assertIn("signal 9", error["message"])
        self.assertEqual(self.runner("add", 1, 1).perform().fields, {"result": 2})

    def test_what_a_handler_has_started_ends_on_signals(self):
        self.assertEqual(self.runner("fork.terminate").perform().fields, {"result": -15})
        self.assertEqual(self.runner("interrupted").perform().fields, {"result": -2})

    def test_the_death_of_a_process_is_noticed_while_what_it_has_forked_lives(self):
        runner, done = self.runner("die.forked"), []
        thread = threading.Thread(target=lambda: done.append(runner.perform()), daemon=True)
        thread.start()
        thread.join(10)
        self.assertEqual(done[0].fields["error"]["type"], "process_died")

    def test_a_process_that_cannot_be_started_leaves_no_descriptor_open(self):
        before = os.listdir("/proc/self/fd")
        with mock.patch("subprocess.Popen", side_effect=OSError("no room")):
            with self.assertRaises(OSError):
                Child("tests.handlers:app", "http://127.0.0.1:9")
        self.assertEqual(os.listdir("/proc/self/fd"), before)

    def test_a_handler_does_not_outlive_its_worker(self):
        with tempfile.TemporaryDirectory() as folder:
            slow = pathlib.Path(folder) / "slow.py"
            slow.write_text(
                "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n"
            )
            for take in ("'tests.handlers:app'", repr(str(slow))):
                self.dies_with_its_worker(take)

    def dies_with_its_worker(self, reference):
        code = (
            "import sys, os\n"
            "from outlast.processes import Processes\n"
            "child = Processes(" + reference + ", 'http://127.0.0.1:9', None).take()\n"
            "print(child.process.pid, flush=True)\n"
            "child.begin({'id': 'j', 'type': 'sleep', 'args': [60]}, None)\n"
            "sys.stdin.read()\n"
        )
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        worker = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        try:
            pid = int(worker.stdout.readline())
            self.assertFalse(has_ended(pid))
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()
            worker.stdin.close()
        wait_for(lambda: has_ended(pid))


def has_ended(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_for(condition, bound=20.0):
    end = time.monotonic() + bound
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.02)
