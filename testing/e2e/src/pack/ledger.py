"""Starts and ends, on the record."""

import json
import os
import sys

ledger = os.open(json.load(sys.stdin)["ledger"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def say(event):
    with open("/proc/uptime", encoding="ascii") as uptime:
        at = float(uptime.read().split()[0])
    line = {
        "job": os.environ["OUTLAST_JOB_ID"],
        "epoch": int(os.environ["OUTLAST_EPOCH"]),
        "pid": os.getpid(),
        "event": event,
        "at": at,
    }
    os.write(ledger, (json.dumps(line) + "\n").encode())
    os.fsync(ledger)


say("start")
say("end")
print(f"epoch={os.environ['OUTLAST_EPOCH']}")
