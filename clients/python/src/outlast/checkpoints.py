"""Checkpoints of the standard's extension "durable execution", where the server has it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from .client import Client
from .errors import Refused

#: What a server without the extension answers.
NOT_OFFERED = (404, 405, 422, 501)


class Checkpoints:
    def __init__(self, client: Client) -> None:
        self._client = client

    def store(self, job: str, state: Any) -> bool:
        return self._send("PUT", job, {"state": state}) is not None

    def load(self, job: str) -> Any:
        answer = self._send("GET", job, None)
        return None if answer is None else answer.get("state")

    def _send(self, method: str, job: str, body: Any) -> Any:
        path = f"/ojs/v1/jobs/{quote(job, safe='')}/checkpoint"
        try:
            return self._client._transport.send(method, path, body) or {}
        except Refused as refused:
            if refused.status in NOT_OFFERED:
                return None
            raise
