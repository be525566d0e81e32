"""HTTP to one of several servers: kept connections, a time limit on every request, retries.

A request is repeated only if that is harmless: what is read or cancelled, and what is stored under
an `Idempotency-Key`. Otherwise it is sent again only if it certainly never arrived.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import random
import ssl
import threading
import time
import weakref
from typing import Any, Dict, Iterator, List, Optional, Tuple
from urllib.parse import urlsplit

from .backoff import Backoff
from .errors import OutlastError, Refused, Unreachable, UsageError, refusal

log = logging.getLogger("outlast")

MEDIA_TYPE = "application/openjobspec+json"
USER_AGENT = "outlast-python/0.1.0"
#: Idle connections that are kept.
IDLE_MAX = 32
#: Seconds after which a server may have closed an idle connection.
IDLE_SECONDS = 15.0
#: No answer of a server is longer.
ANSWER_MAX = 64 << 20
#: Longest that a server's `Retry-After` is heeded.
RETRY_AFTER_MAX = 60.0
#: What has gone wrong when no answer came.
NO_ANSWER = (OSError, http.client.HTTPException)


class Unanswered(OutlastError):
    """One try came to nothing."""

    def __init__(self, error: BaseException, sent: bool) -> None:
        super().__init__(reason_of(error))
        #: Whether the server may have received the request.
        self.sent = sent


def reason_of(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = getattr(error, "strerror", None) or str(error)
    return text or type(error).__name__


class Settings:
    """Where the servers are, and what to show them."""

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        token: Optional[str] = None,
        token_file: Optional[str] = None,
        ca_file: Optional[str] = None,
        certificate: Optional[Tuple[str, str]] = None,
        tenant: Optional[str] = None,
        timeout: float = 10.0,
        retry_for: float = 30.0,
    ) -> None:
        env = os.environ
        url = url or env.get("OUTLAST_SERVER") or env.get("OJS_URL") or "http://127.0.0.1:8080"
        self.servers = [part.strip().rstrip("/") for part in url.split(",") if part.strip()]
        for server in self.servers:
            parts = urlsplit(server)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise UsageError(f"{server!r} is no address; write one such as http://host:8080")
        if not self.servers:
            raise UsageError("no server is named; write one such as http://host:8080")
        if token is None and token_file is None:
            token_file = env.get("OUTLAST_TOKEN_FILE")
            if token_file is None:
                token = env.get("OUTLAST_TOKEN") or env.get("OJS_AUTH_TOKEN")
        self.token, self.token_file = token, token_file
        if timeout <= 0 or retry_for < 0:
            raise UsageError("`timeout` must be more than 0 seconds, `retry_for` at least 0")
        self.ca_file, self.certificate = ca_file, certificate
        self.tenant, self.timeout, self.retry_for = tenant, timeout, retry_for
        self.tls: Optional[ssl.SSLContext] = None
        if any(server.startswith("https:") for server in self.servers):
            self.tls = ssl.create_default_context(cafile=ca_file)
            if certificate is not None:
                self.tls.load_cert_chain(*certificate)

    def shown_token(self) -> Optional[str]:
        """The token. A file is read each time: it may be replaced while the program runs."""
        if self.token_file is None:
            return self.token
        try:
            with open(self.token_file, encoding="ascii") as file:
                return file.read().strip()
        except (OSError, ValueError) as error:
            raise UsageError(f"token file {self.token_file}: {reason_of(error)}") from error


class Transport:
    """Sends requests. Any number of threads may share one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._begin()
        # Clients spread over the servers.
        self._used = random.randrange(len(settings.servers))
        transports.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._idle: List[Tuple[float, str, http.client.HTTPConnection]] = []

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: Optional[str] = None,
        repeat: bool = True,
        timeout: Optional[float] = None,
        retry_for: Optional[float] = None,
    ) -> Any:
        """Sends a request until it is answered, and returns the JSON of the answer."""
        text = None if body is None else encode(body)
        patience = self.settings.retry_for if retry_for is None else retry_for
        end = time.monotonic() + patience
        backoff, tries = Backoff(), 0
        while True:
            tries += 1
            asked = None
            try:
                return self.once(method, path, text, key=key, timeout=timeout, fresh=not repeat)
            except Refused as refused:
                if not (repeat and refused.is_for_now):
                    raise
                failed: OutlastError = refused
                asked = refused.retry_after
            except Unanswered as unanswered:
                if not repeat and unanswered.sent:
                    raise self.unreachable(unanswered, tries) from unanswered.__cause__
                failed = unanswered
            pause = backoff.pause(asked)
            if time.monotonic() + pause >= end:
                if isinstance(failed, Unanswered):
                    raise self.unreachable(failed, tries) from failed.__cause__
                raise failed
            log.debug("%s %s is repeated in %.2f s: %s", method, path, pause, failed)
            time.sleep(pause)

    def unreachable(self, failed: Unanswered, tries: int) -> Unreachable:
        return Unreachable(",".join(self.settings.servers), tries, str(failed))

    def once(
        self,
        method: str,
        path: str,
        text: Optional[bytes] = None,
        *,
        key: Optional[str] = None,
        timeout: Optional[float] = None,
        fresh: bool = False,
    ) -> Any:
        """Sends a request once; to the next server if the first cannot be reached at all.

        On a `fresh` connection it is certain that it is sent once.
        """
        timeout = self.settings.timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        failed: Optional[Unanswered] = None
        for _server in self.settings.servers:
            with self._lock:
                used = self._used
            server = self.settings.servers[used]
            try:
                return self._at(server, (method, path, text, key), deadline, fresh)
            except Unanswered as error:
                failed = error
                self._move_on(used)
                if error.sent or time.monotonic() >= deadline:
                    raise
            except Refused as refused:
                if refused.status in (502, 503, 504):
                    self._move_on(used)
                raise
        raise failed or Unanswered(OSError("no server"), False)

    def _move_on(self, used: int) -> None:
        with self._lock:
            if self._used == used:
                self._used = (used + 1) % len(self.settings.servers)

    def _at(
        self,
        server: str,
        request: Tuple[str, str, Optional[bytes], Optional[str]],
        deadline: float,
        fresh: bool,
    ) -> Any:
        method, path, text, key = request
        while True:
            connection, is_kept = self._connection(server, deadline, fresh)
            sent = False
            try:
                headers = self._headers(text, key)
                if connection.sock is None:
                    connection.connect()
                self._limit(connection, deadline)
                sent = True
                connection.request(method, urlsplit(server).path + path, text, headers)
                response = connection.getresponse()
                body = self._read(connection, response, deadline)
            except (http.client.RemoteDisconnected, ConnectionError) as error:
                connection.close()
                # Most likely the server had closed the connection while nothing was sent on it.
                if is_kept:
                    continue
                raise Unanswered(error, sent) from error
            except NO_ANSWER as error:
                connection.close()
                raise Unanswered(error, sent) from error
            except BaseException:
                # Not to be used again, with half an answer in it.
                connection.close()
                raise
            self._keep(server, connection, response)
            return self._answer(response, body)

    def _connection(
        self, server: str, deadline: float, is_new: bool
    ) -> Tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            now = time.monotonic()
            fresh = [idle for idle in self._idle if now - idle[0] < IDLE_SECONDS]
            stale = [idle for idle in self._idle if now - idle[0] >= IDLE_SECONDS]
            usable = (idle for idle in reversed(fresh) if idle[1] == server and not is_new)
            found = next(usable, None)
            if found is not None:
                fresh.remove(found)
            self._idle = fresh
        for _since, _server, connection in stale:
            connection.close()
        if found is not None:
            return found[2], True
        parts = urlsplit(server)
        timeout = max(deadline - time.monotonic(), 0.001)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            secure = http.client.HTTPSConnection(
                host, port, timeout=timeout, context=self.settings.tls
            )
            return secure, False
        return http.client.HTTPConnection(host, port, timeout=timeout), False

    def _keep(
        self,
        server: str,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
    ) -> None:
        if response.will_close:
            connection.close()
            return
        with self._lock:
            self._idle.append((time.monotonic(), server, connection))
            extra = self._idle[:-IDLE_MAX]
            self._idle = self._idle[-IDLE_MAX:]
        for _since, _server, old in extra:
            old.close()

    def _headers(self, text: Optional[bytes], key: Optional[str]) -> Dict[str, str]:
        headers = {"Accept": MEDIA_TYPE, "User-Agent": USER_AGENT, "OJS-Version": "1.0"}
        if text is not None:
            headers["Content-Type"] = MEDIA_TYPE
        if key is not None:
            headers["Idempotency-Key"] = key
        if self.settings.tenant is not None:
            headers["X-OJS-Tenant"] = self.settings.tenant
        token = self.settings.shown_token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    @staticmethod
    def _limit(connection: http.client.HTTPConnection, deadline: float) -> None:
        if connection.sock is not None:
            connection.sock.settimeout(max(deadline - time.monotonic(), 0.001))

    def _read(
        self,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        deadline: float,
    ) -> bytes:
        parts: List[bytes] = []
        length = 0
        while True:
            self._limit(connection, deadline)
            part = response.read1(1 << 16)
            if not part:
                # Reads what follows the last chunk, so that the connection can be used again.
                response.read()
                return b"".join(parts)
            length += len(part)
            if length > ANSWER_MAX:
                raise http.client.HTTPException(f"the answer is longer than {ANSWER_MAX} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError
            parts.append(part)

    @staticmethod
    def _answer(response: http.client.HTTPResponse, body: bytes) -> Any:
        value: Any = None
        if body:
            try:
                value = json.loads(body)
            except ValueError as error:
                if 200 <= response.status < 300:
                    raise OutlastError(
                        f"the server's answer is no JSON but {body[:80]!r}"
                    ) from error
        if 200 <= response.status < 300:
            return value
        raise refusal(response.status, value, retry_after(response.getheader("Retry-After")))

    def stream(self, path: str, last_event_id: Optional[str]) -> "Lines":
        """Opens a stream of Server-Sent Events, once."""
        server = self.settings.servers[self._used]
        connection, _kept = self._connection(server, time.monotonic() + self.settings.timeout, True)
        try:
            headers = self._headers(None, None)
            headers["Accept"] = "text/event-stream"
            if last_event_id:
                headers["Last-Event-ID"] = last_event_id
            connection.request("GET", urlsplit(server).path + path, None, headers)
            response = connection.getresponse()
            if response.status != 200:
                body = self._read(connection, response, time.monotonic() + self.settings.timeout)
                connection.close()
                if response.status == 204:
                    return Lines(None, None)
                self._answer(response, body)
            return Lines(connection, response)
        except NO_ANSWER as error:
            connection.close()
            self._move_on(self._used)
            raise Unanswered(error, True) from error
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Closes the connections that are kept."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _since, _server, connection in idle:
            connection.close()


transports: "weakref.WeakSet[Transport]" = weakref.WeakSet()


def after_fork() -> None:
    """The connections are the parent's, and one of its threads may have held the lock."""
    for transport in list(transports):
        transport._begin()


os.register_at_fork(after_in_child=after_fork)

#: A server sends a comment every ten seconds: after this long the connection is dead.
STREAM_SILENCE = 35.0
LINE_MAX = 4 << 20


class Lines:
    """The lines of a stream; none where there is nothing to come."""

    def __init__(
        self,
        connection: Optional[http.client.HTTPConnection],
        response: Optional[http.client.HTTPResponse],
    ) -> None:
        self.connection, self.response = connection, response

    @property
    def is_over(self) -> bool:
        """Whether the server says that nothing will come."""
        return self.response is None

    def __iter__(self) -> Iterator[str]:
        if self.connection is None or self.response is None:
            return
        if self.connection.sock is not None:
            self.connection.sock.settimeout(STREAM_SILENCE)
        while True:
            try:
                line = self.response.readline(LINE_MAX)
            except NO_ANSWER as error:
                raise Unanswered(error, True) from error
            if not line:
                return
            yield line.decode("utf-8", "replace").rstrip("\r\n")

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


def encode(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"this is no JSON: {error}") from error


def retry_after(text: Optional[str]) -> Optional[float]:
    try:
        return min(max(float(text or ""), 0.0), RETRY_AFTER_MAX)
    except ValueError:
        return None
