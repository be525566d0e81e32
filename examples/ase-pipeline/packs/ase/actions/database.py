"""Runs the pack's SQL with psql, which finds the database in PGHOST, PGDATABASE and so on."""

import pathlib
import re
import subprocess
import sys

SQL = pathlib.Path(__file__).parent.parent / "sql"
# Classes of SQLSTATE: bad data, and data that breaks a constraint.
REFUSED = re.compile(r"ERROR:  (22|23)\w{3}: (.*)")


class Refused(Exception):
    """The database does not accept the data, now or later."""


def run(script, content=b"", **variables):
    """Runs a script, gives it `content` to copy from, and returns what it prints.

    Values are variables of psql, which quotes them: they are never part of the SQL.
    """
    command = ["psql", "-X", "-q", "-A", "-t", "-f", SQL / script]
    settings = {"ON_ERROR_STOP": "1", "VERBOSITY": "verbose", **variables}
    for name, value in settings.items():
        command += ["-v", f"{name}={value}"]
    done = subprocess.run(command, input=content, capture_output=True)
    if done.returncode == 0:
        return done.stdout
    error = done.stderr.decode(errors="replace")
    refused = REFUSED.search(error)
    if refused:
        raise Refused(refused[2])
    sys.exit(f"psql exited with {done.returncode}: {error}")
