"""The end of a worker whose handlers do not end.

A thread cannot be killed, and a job must not be handed back while its handler still runs. So the
process becomes another program, which ends all of its threads at once, and that one reports.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from typing import Any, Mapping, Sequence, Tuple

from .backoff import Backoff
from .descendants import end_descendants
from .errors import OutlastError, Refused
from .processes import python
from .transport import Settings, Transport, encode

#: How long the reports may take.
REPORT_MAX = 5.0


def hand_back_and_exit(
    settings: Settings, worker: str, reports: Sequence[Tuple[str, Mapping[str, Any]]], code: int
) -> int:
    """Ends all threads of this process and sends the reports. It does not return.

    Each is `ack` or `nack`, and what to say. `code` is the exit code when all were taken.
    """
    said = {
        "servers": ",".join(settings.servers),
        "token": settings.token,
        "token_file": settings.token_file,
        "ca_file": settings.ca_file,
        "certificate": settings.certificate,
        "tenant": settings.tenant,
        "worker": worker,
        "reports": list(reports),
        "code": code,
    }
    descriptor = written(json.dumps(said).encode())
    os.set_inheritable(descriptor, True)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    command = python(f"from outlast.handback import main; main({descriptor})")
    if threading.current_thread() is threading.main_thread():
        ignore_signals()
    os.execv(command[0], command)


def written(data: bytes) -> int:
    """A file without a name, as it holds a token; in memory, where there is that."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("outlast")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    while data:
        data = data[os.write(descriptor, data) :]
    return descriptor


def ignore_signals() -> None:
    """It ends soon by itself, and is to end with the exit code of a drain."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def main(descriptor: int) -> None:
    ignore_signals()
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(descriptor, "rb") as file:
        said = json.load(file)
    settings = Settings(
        said["servers"],
        token=said["token"] or "",
        token_file=said["token_file"],
        ca_file=said["ca_file"],
        certificate=said["certificate"] and tuple(said["certificate"]),
        tenant=said["tenant"],
    )
    # Programs that handlers have started, and processes for handlers.
    end_descendants(os.getpid())
    transport, end = Transport(settings), time.monotonic() + REPORT_MAX
    left = sum(not report(transport, path, body, end) for path, body in said["reports"])
    if left:
        print(f"{left} jobs are left: they run elsewhere when the lease is over", file=sys.stderr)
        sys.exit(1)
    goodbye = {"worker_id": said["worker"], "state": "terminated", "active_jobs": []}
    try:
        transport.once("POST", "/ojs/v1/workers/heartbeat", encode(goodbye), timeout=2)
    except OutlastError:
        pass
    print(f"{len(said['reports'])} jobs reported or handed back; ended", file=sys.stderr)
    sys.exit(said["code"])


def is_final(refused: Refused) -> bool:
    """Whether the same report is refused for ever. A token that has run out may be replaced."""
    return refused.status < 500 and refused.status not in (401, 403) and not refused.is_for_now


def report(transport: Transport, path: str, body: Mapping[str, Any], end: float) -> bool:
    backoff = Backoff()
    while time.monotonic() < end:
        try:
            timeout = max(end - time.monotonic(), 0.1)
            transport.once("POST", f"/ojs/v1/workers/{path}", encode(body), timeout=timeout)
            return True
        except Refused as refused:
            # 409: it is not this worker's any more.
            if is_final(refused):
                return refused.status == 409
        except OutlastError:
            pass
        time.sleep(backoff.pause())
    return False
