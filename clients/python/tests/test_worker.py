"""Workers of a server that the test plays."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

from outlast import Outlast, Worker, current_job
from outlast.descendants import descendants
from outlast.handback import written
from outlast.processes import Processes

from . import handlers
from .test_runners import ROOT, has_ended, wait_for


class Server:
    """Hands out `jobs`, answers heartbeats with `beat`, and reports with `answer(path, body)`.

    With the status 0 the connection is closed.
    """

    def __init__(self, *jobs):
        self.jobs, self.beat, self.reports = list(jobs), {"state": "running"}, []
        self.beat_status, self.states, self.active = 200, [], []
        self.answer = lambda _path, _body: 200
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, said = 200, {}
                path = self.path.rpartition("/")[2]
                if path == "fetch":
                    said = {"jobs": [server.jobs.pop(0) for _ in server.jobs[: body["count"]]]}
                elif path == "heartbeat":
                    status, said = server.beat_status, server.beat
                    server.states.append(body["state"])
                    server.active = body["active_jobs"]
                else:
                    server.reports.append((path, body))
                    status = server.answer(path, body)
                if status == 0:
                    self.close_connection = True
                    return
                data = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_said):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def ends(self):
        """What was reported, in short: the job, and how it ended."""
        return [
            (body["job_id"], "ack" if path == "ack" else (body.get("error") or {}).get("type"))
            for path, body in self.reports
        ]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def job(id="j", type="t", **more):
    return {"id": id, "type": type, "args": [], "attempt": 1, "lease": f"lease-{id}", **more}


class Workers(unittest.TestCase):
    def begin(self, handler, *jobs, **options):
        """A worker in a thread, with the server that it asks."""
        server = Server(*jobs)
        self.addCleanup(server.close)
        app = Outlast(server.url)
        app.job(options.pop("type", "t"))(handler)
        worker = Worker(app, **{"lease": 3, "grace": 10, **options})
        thread = threading.Thread(target=lambda: setattr(thread, "code", worker.run()))
        thread.start()

        def end():
            worker.stop()
            thread.join(20)
            worker._transport.close()
            app.client.close()

        self.addCleanup(end)
        return server, worker, thread

    def test_a_signal_after_an_ordered_drain_is_the_first_one(self):
        server, worker, thread = self.begin(lambda: current_job().sleep(2.5), job())
        wait_for(lambda: worker._running)
        server.beat = {"state": "terminate"}
        wait_for(lambda: worker._is_draining)
        worker.stop()
        thread.join(20)
        self.assertEqual((thread.code, server.ends()), (0, [("j", "ack")]))


    def test_a_second_claim_of_a_job_without_lease_is_kept(self):
        runs = []

        def handler():
            runs.append(1)
            current_job().sleep(30 if len(runs) == 1 else 1)

        server, worker, thread = self.begin(handler, job(lease=None))
        wait_for(lambda: runs)
        server.jobs.append(job(lease=None, attempt=2))
        wait_for(lambda: len(runs) == 2 and server.reports)
        time.sleep(0.3)
        self.assertEqual([attempt.job.attempt for attempt in worker._running], [2])


    def test_a_second_claim_waits_no_longer_than_the_stop_window(self):
        ended = []

        def handler():
            time.sleep(2)
            ended.append(True)

        server, worker, _thread = self.begin(handler, job(), stop_window=0.5)
        wait_for(lambda: worker._running)
        server.jobs.append(job(lease="lease-2", attempt=2, timeout_ms=100))
        wait_for(lambda: server.reports)
        self.assertEqual(ended, [])
        path, body = server.reports[0]
        self.assertEqual((path, body["lease"], body.get("requeue")), ("nack", "lease-2", True))
        wait_for(lambda: len(server.reports) == 2)

    def test_a_job_that_cannot_begin_is_handed_back_and_the_next_ones_run(self):
        start = threading.Thread.start

        def starts(thread):
            if thread.name == "outlast starved":
                raise RuntimeError("can't start new thread")
            start(thread)

        with mock.patch.object(threading.Thread, "start", starts):
            jobs = job("odd", meta=5), job("starved"), job("good")
            server, worker, _thread = self.begin(lambda: None, *jobs)
            wait_for(lambda: len(server.reports) >= 3)
        wait_for(lambda: not worker._running)
        self.assertEqual(
            sorted((body["job_id"], path, body.get("requeue")) for path, body in server.reports),
            [("good", "ack", None), ("odd", "nack", True), ("starved", "nack", True)],
        )


    def test_a_new_job_without_a_handler_is_left_to_other_workers(self):
        new = {"enqueued_at": "2030-01-01T00:00:00.1Z", "started_at": "2030-01-01T00:01:00.123456Z"}
        server, _worker, _thread = self.begin(lambda: None, job("new", type="other", **new))
        wait_for(lambda: server.reports)
        self.assertEqual((server.ends(), server.reports[0][1]["requeue"]), ([("new", None)], True))
        began = time.monotonic()
        old = {**new, "enqueued_at": "2029-12-31T23:55:00Z"}
        server.jobs += [job("old", type="other", **old), job("strange", type="other")]
        wait_for(lambda: len(server.reports) == 3)
        self.assertGreater(time.monotonic() - began, 0.2)
        ends = [("old", "no_handler"), ("strange", "no_handler")]
        self.assertEqual(sorted(server.ends()[1:]), ends)
        server.jobs.append(job("due", type="other", scheduled_at="2030-01-01T00:00:59Z", **old))
        wait_for(lambda: ("due", None) in server.ends())

    def test_a_job_whose_process_cannot_start_is_handed_back_after_a_growing_pause(self):
        reasons = [OSError("no room")] * 2
        take = Processes.take

        def takes(processes):
            if reasons and self.fetched:
                raise reasons.pop()
            return take(processes)

        self.fetched = []
        with mock.patch.object(Processes, "take", takes):
            server, worker, _thread = self.begin(
                handlers.add.function,
                run_in="process",
                reference="tests.handlers:app",
                type="add",
                concurrency=1,
            )
            wait_for(lambda: worker._is_known)
            self.fetched.append(1)
            began = time.monotonic()
            server.jobs += [job(str(n), type="add", args=[1]) for n in range(3)]
            wait_for(lambda: len(server.reports) == 3)
        self.assertGreater(time.monotonic() - began, 0.25 + 0.5)
        said = [body.get("requeue") or body["result"] for _path, body in server.reports]
        self.assertEqual(said, [True, True, 3])

    def test_a_report_that_is_not_allowed_is_repeated_while_the_token_is_refused(self):
        server, worker, _thread = self.begin(lambda: None)
        statuses = [401, 403, 200]
        server.answer = lambda _path, _body: statuses.pop(0)
        server.jobs.append(job())
        wait_for(lambda: len(server.reports) == 3)
        self.assertEqual({path for path, _body in server.reports}, {"ack"})


    def test_a_report_that_is_too_long_for_the_server_is_given_up(self):
        server, worker, _thread = self.begin(lambda: "x" * (2 << 20))
        server.answer = lambda _path, body: 0 if "result" in body else 200
        server.jobs.append(job())
        wait_for(lambda: ("j", "invalid_result") in server.ends())
        wait_for(lambda: not worker._running)

    def test_a_report_that_was_lost_with_its_server_is_not_given_up(self):
        server, worker, _thread = self.begin(lambda: "x" * (2 << 20))

        def answer(_path, _body):
            server.beat_status = 503
            return 200 if len(server.reports) > 5 else 0

        server.answer = answer
        server.jobs.append(job())
        wait_for(lambda: not worker._running and len(server.reports) > 5)
        self.assertEqual({path for path, _body in server.reports}, {"ack"})

    def test_an_error_that_the_server_cannot_read_is_reported_in_other_words(self):
        def fails():
            open("a\udcff")

        server, worker, _thread = self.begin(fails)
        server.answer = lambda _path, body: 200 if body["error"]["type"] == "invalid_error" else 400
        server.jobs.append(job())
        wait_for(lambda: len(server.reports) == 2)
        first, second = (body["error"] for _path, body in server.reports)
        self.assertEqual(first["type"], "FileNotFoundError")
        self.assertTrue(str(first).isascii(), first)
        self.assertTrue(second["retryable"])


    def test_a_process_that_ignores_a_cancel_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "helper"
            server, _worker, _thread = self.begin(
                handlers.app.tasks["deaf"].function,
                job(type="deaf", args=[str(path)]),
                run_in="process",
                reference="tests.handlers:app",
                stop_window=0.3,
                type="deaf",
            )
            wait_for(path.exists)
            server.beat = {"state": "running", "stale_jobs": ["j"]}
            wait_for(lambda: server.reports)


    def test_what_has_completed_is_reported_so_by_the_program_that_hands_back(self):
        server = Server(job("done"), job("deaf", args=[60]))
        self.addCleanup(server.close)

        def answer(path, _body):
            if path == "ack" and len(server.reports) == 1:
                time.sleep(3)
                return 503
            return 200

        server.answer = answer
        with self.program(server, "grace=0, stop_window=0.3") as worker:
            wait_for(lambda: server.reports)
            worker.send_signal(signal.SIGTERM)
            self.assertEqual(worker.wait(20), 0)
        ends = [("done", "ack"), ("done", "ack"), ("deaf", "shutdown")]
        self.assertEqual(server.ends(), ends)


    def test_a_handler_that_is_deaf_when_the_server_is_away_ends_with_its_process(self):
        server = Server(job("deaf", args=[60]))
        self.addCleanup(server.close)
        with self.program(server, "lease=3") as worker:
            wait_for(lambda: server.active)
            server.beat_status = 503
            began = time.monotonic()
            self.assertEqual(worker.wait(20), 1)
        self.assertLess(time.monotonic() - began, 20)
        self.assertEqual(server.ends(), [("deaf", "shutdown")])

    def test_a_job_that_comes_when_the_server_is_away_is_stopped_too(self):
        server, worker, _thread = self.begin(lambda: current_job().sleep(30), job("first"))
        wait_for(lambda: worker._running)
        server.beat_status = 503
        wait_for(lambda: worker._cut_off is not None)
        worker._start(job("late"))
        wait_for(lambda: ("late", "shutdown") in server.ends())

    def test_a_second_signal_ends_the_stop_window(self):
        server = Server(job("deaf", args=[60]))
        self.addCleanup(server.close)
        with self.program(server, "lease=3, grace=0, stop_window=30") as worker:
            wait_for(lambda: server.active)
            worker.send_signal(signal.SIGTERM)
            wait_for(lambda: server.states[-1] == "terminate")
            time.sleep(0.3)
            worker.send_signal(signal.SIGTERM)
            self.assertEqual(worker.wait(20), 0)
        self.assertEqual(server.ends(), [("deaf", "shutdown")])

    def test_a_job_whose_process_still_loads_at_the_end_is_handed_back(self):
        server = Server(job("runs", type="sleep", args=[60]), job("waits", type="sleep", args=[60]))
        self.addCleanup(server.close)
        with tempfile.TemporaryDirectory() as folder:
            slow, loaded = pathlib.Path(folder) / "slow.py", pathlib.Path(folder) / "loaded"
            slow.write_text(
                "import os, sys, time\n"
                f"if os.path.exists({str(loaded)!r}): time.sleep(60)\n"
                f"open({str(loaded)!r}, 'w')\n"
                "from tests.handlers import app\n"
            )
            options = f"run_in='process', reference={str(slow)!r}, lease=3, grace=0, stop_window=0"
            with self.program(server, options, type="sleep") as worker:
                wait_for(lambda: len(server.active) == 2)
                worker.send_signal(signal.SIGTERM)
                self.assertEqual(worker.wait(20), 0)
        self.assertEqual(sorted(server.ends()), [("runs", "shutdown"), ("waits", "shutdown")])

    def test_a_signal_while_programs_are_loaded_ends_the_worker(self):
        server = Server()
        self.addCleanup(server.close)
        with tempfile.TemporaryDirectory() as folder:
            slow = pathlib.Path(folder) / "slow.py"
            loads = pathlib.Path(folder) / "loads"
            slow.write_text(f"open({str(loads)!r}, 'w')\nimport time; time.sleep(60)\n")
            options = f"run_in='process', reference={str(slow)!r}"
            with self.program(server, options) as worker:
                wait_for(loads.exists)
                worker.send_signal(signal.SIGTERM)
                self.assertEqual(worker.wait(10), 0)

    def test_a_signal_while_jobs_are_handed_back_changes_nothing(self):
        server = Server(job("deaf", args=[60]))
        self.addCleanup(server.close)
        with self.program(server, "lease=3, grace=0, stop_window=0.1") as worker:

            def answer(_path, _body):
                worker.send_signal(signal.SIGTERM)
                time.sleep(0.3)
                return 200

            server.answer = answer
            wait_for(lambda: server.active)
            worker.send_signal(signal.SIGTERM)
            self.assertEqual(worker.wait(20), 0)

    def test_jobs_are_handed_back_where_no_file_can_be_written(self):
        with mock.patch("tempfile.TemporaryFile", side_effect=OSError("read-only")):
            descriptor = written(b"said")
        self.addCleanup(os.close, descriptor)
        self.assertEqual(os.pread(descriptor, 9, 0), b"said")

    def test_a_worker_that_began_with_blocked_signals_drains(self):
        server = Server()
        self.addCleanup(server.close)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        self.addCleanup(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        with self.program(server, "grace=1") as worker:
            wait_for(lambda: server.states)
            worker.send_signal(signal.SIGTERM)
            self.assertEqual(worker.wait(10), 0)

    def test_what_handlers_have_forked_ends_on_signals_and_with_the_worker(self):
        server = Server(job("deaf", args=["fork"]))
        self.addCleanup(server.close)
        with self.program(server, "grace=0, stop_window=0.5") as worker:
            wait_for(lambda: len(descendants(worker.pid)) == 3)
            forked = descendants(worker.pid)
            os.kill(forked[0], signal.SIGTERM)
            wait_for(lambda: forked[0] not in descendants(worker.pid))
            worker.send_signal(signal.SIGTERM)
            self.assertEqual(worker.wait(20), 0)
        for process in forked:
            wait_for(lambda: has_ended(process))

    def program(self, server, options, type="t"):
        """A worker in a process of its own, whose handler sleeps, and may fork before."""
        code = (
            "import multiprocessing, subprocess, time\n"
            "from outlast import Outlast, Worker\n"
            f"app = Outlast({server.url!r})\n"
            "def handler(seconds=0):\n"
            "    if seconds == 'fork':\n"
            "        context = multiprocessing.get_context('fork')\n"
            "        context.Process(target=time.sleep, args=[60]).start()\n"
            "        shell = ['sh', '-c', 'sleep 60; exit 0']\n"
            "        subprocess.Popen(shell, start_new_session=True)\n"
            "        seconds = 60\n"
            "    time.sleep(seconds)\n"
            f"app.job({type!r})(handler)\n"
            f"raise SystemExit(Worker(app, {options}).run())\n"
        )
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        return subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.DEVNULL)

    def test_a_signal_interrupts_no_lock(self):
        """A handler of signals that takes a lock may wait for what it has interrupted."""
        worker = Worker(self.app())
        worker._beat_wanted = mock.Mock()
        restore = worker._catch_signals()
        self.addCleanup(restore)
        signal.raise_signal(signal.SIGTSTP)
        self.assertTrue(worker._is_quiet)
        worker._beat_wanted.set.assert_not_called()

    def app(self):
        app = Outlast("http://127.0.0.1:9")
        app.job("t")(lambda: None)
        return app


if __name__ == "__main__":
    unittest.main()
