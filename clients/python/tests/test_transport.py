"""Requests to a real HTTP server whose answers the test says."""

import json
import os
import signal
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from outlast import (
    Client,
    Conflict,
    NewJob,
    Options,
    OutlastError,
    QueueFull,
    Refused,
    Unique,
    Unreachable,
    UsageError,
)

JOB = {"id": "j", "type": "t", "state": "available", "queue": "q", "args": []}


class Site:
    """A server that gives `answers` in turn, the last one again and again.

    Each is (status, headers, body, pause); with status 0 the connection is closed.
    """

    def __init__(self, *answers):
        self.requests = []
        answers = list(answers)
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                site.requests.append((self.command, self.path, self.headers, body))
                status, headers, body, pause = answers.pop(0) if len(answers) > 1 else answers[0]
                time.sleep(pause)
                if status == 0:
                    self.connection.close()
                    self.close_connection = True
                    return
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_said):
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_request):
                """A client that does not wait for the answer is no error here."""

        self.clients = []
        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def client(self, **options):
        self.clients.append(Client(options.pop("url", self.url), **options))
        return self.clients[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        for client in self.clients:
            client.close()
        self.server.shutdown()
        self.server.server_close()


def ok(body=None, pause=0.0):
    return (200, {}, {"job": JOB} if body is None else body, pause)


def error(status, code, headers=None):
    return (status, headers or {}, {"error": {"code": code, "message": "no"}}, 0.0)


class Requests(unittest.TestCase):
    def test_a_fork_shares_no_connection(self):
        with Site(ok()) as site:
            client = site.client()
            client.get("j")
            transport = client._transport
            # As it is when another thread sends while this one forks.
            with transport._lock:
                pid = os.fork()
                if pid == 0:
                    signal.alarm(5)
                    os._exit(int(transport._lock.locked() or bool(transport._idle)))
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            self.assertEqual(len(transport._idle), 1)

    def test_an_enqueue_is_repeated_under_one_key_until_it_is_stored(self):
        with Site(error(503, "unavailable"), (0, {}, b"", 0.0), ok()) as site:
            job = site.client(token="secret").enqueue("t", [1])
        keys = {headers["Idempotency-Key"] for _method, _path, headers, _body in site.requests}
        self.assertEqual((job.id, len(site.requests), len(keys)), ("j", 3, 1))
        self.assertEqual(site.requests[0][2]["Authorization"], "Bearer secret")

    def test_the_pause_that_a_server_asks_for_is_kept(self):
        with Site(error(503, "unavailable", {"Retry-After": "1"}), ok()) as site:
            began = time.monotonic()
            site.client().get("j")
        self.assertGreaterEqual(time.monotonic() - began, 1.0)

    def test_refusals_are_not_repeated_and_say_what_is_wrong(self):
        for answer, kind in (
            (error(409, "duplicate"), Conflict),
            (error(429, "QUEUE_FULL", {"Retry-After": "1"}), QueueFull),
            (error(422, "validation_error"), Refused),
            ((500, {}, b"<html>", 0.0), Refused),
        ):
            with Site(answer) as site:
                with self.assertRaises(kind) as raised:
                    site.client().enqueue("t")
            self.assertEqual(len(site.requests), 1, raised.exception)

    def test_a_request_takes_no_longer_than_its_limit(self):
        with Site(ok(pause=5.0)) as site:
            began = time.monotonic()
            with self.assertRaises(Unreachable):
                site.client(timeout=0.3, retry_for=0).get("j")
        self.assertLess(time.monotonic() - began, 3.0)

    def test_a_batch_whose_answer_could_differ_is_sent_once(self):
        job = NewJob("t", [], Options(unique=Unique(on_conflict="ignore")))
        with Site((0, {}, b"", 0.0)) as site:
            with self.assertRaises(Unreachable):
                site.client(retry_for=2).enqueue_all([job])
        self.assertEqual(len(site.requests), 1)

    def test_the_next_server_is_asked_when_one_is_away(self):
        with Site(ok()) as site:
            for _ in range(4):
                self.assertEqual(site.client(url=f"http://127.0.0.1:9,{site.url}").get("j").id, "j")

    def test_a_connection_that_the_server_has_closed_is_replaced(self):
        closing = (200, {"Connection": "close"}, {"job": JOB}, 0.0)
        with Site(closing, ok(), (0, {}, b"", 0.0), ok()) as site:
            client = site.client()
            self.assertEqual([client.get("j").id for _ in range(3)], ["j", "j", "j"])

    def test_an_answer_that_is_no_json_is_named(self):
        with Site((200, {}, b"<html>", 0.0)) as site:
            with self.assertRaises(OutlastError) as raised:
                site.client().get("j")
        self.assertIn("<html>", str(raised.exception))

    def test_addresses_that_are_none_are_refused(self):
        for wrong in ("127.0.0.1:8080", "ftp://host", "http://", ","):
            with self.assertRaises(UsageError):
                Client(wrong)

    def test_what_is_no_json_is_not_sent(self):
        with self.assertRaises(UsageError):
            Client("http://127.0.0.1:9").enqueue("t", [object()])
