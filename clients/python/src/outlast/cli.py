"""`outlast-worker mymodule:app` runs the handlers of a program."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import Optional, Sequence

from .app import PLACES, load
from .errors import OutlastError, UsageError
from .worker import Worker


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="outlast-worker",
        description="Runs jobs with the handlers of a Python program until SIGTERM.",
    )
    made.add_argument("app", help="module:name of the Outlast object, such as tasks:app")
    made.add_argument("--server", metavar="URL", help="instead of the one that the program names")
    made.add_argument("-c", "--concurrency", type=int, default=10, help="slots (default: 10)")
    made.add_argument("--queues", metavar="A,B", help="instead of those of the handlers")
    made.add_argument("--run-in", choices=PLACES, default="thread", help="where handlers run")
    made.add_argument("--name", help="what its id begins with (default: the host's name)")
    made.add_argument("--lease", type=float, metavar="S", help="ojs.lease of the server (30)")
    made.add_argument(
        "--grace", type=float, metavar="S", help="how long jobs may go on after SIGTERM (30)"
    )
    made.add_argument(
        "--stop-window", type=float, default=5.0, metavar="S", help="then to end in (5)"
    )
    made.add_argument(
        "--no-handler-window",
        type=float,
        default=300.0,
        metavar="S",
        help="how long jobs without a handler are left to other workers (300)",
    )
    made.add_argument(
        "--jobs-per-process", type=int, metavar="N", help="replace a process after N jobs"
    )
    made.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    return made


def main(arguments: Optional[Sequence[str]] = None) -> None:
    given = parser().parse_args(arguments)
    logging.basicConfig(
        level=given.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        reference = os.path.abspath(given.app) if given.app.endswith(".py") else given.app
        app = load(reference)
        if given.server:
            app.at(given.server)
        worker = Worker(
            app,
            concurrency=given.concurrency,
            queues=[queue for queue in (given.queues or "").split(",") if queue],
            run_in=given.run_in,
            name=given.name,
            lease=given.lease,
            grace=given.grace,
            stop_window=given.stop_window,
            no_handler_window=given.no_handler_window,
            jobs_per_process=given.jobs_per_process,
            reference=reference,
        )
    except UsageError as error:
        print(f"outlast-worker: {error}", file=sys.stderr)
        sys.exit(2)
    try:
        code = worker.run()
    except OutlastError as error:
        print(f"outlast-worker: {error}", file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of handlers that were left behind do not hold the process up.
    os._exit(code)
