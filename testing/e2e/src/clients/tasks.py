"""Handlers that write what they do to a ledger, which Outlast never touches."""

import asyncio
import json
import os
import time

from outlast import Outlast, Permanent, current_job

app = Outlast(queue="tests")
TICK = 0.05


def note(event):
    job = current_job()
    at = time.clock_gettime(time.CLOCK_BOOTTIME)
    line = {"job": job.id, "epoch": job.epoch, "pid": os.getpid(), "event": event, "at": at}
    file = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


@app.job("letter.send", retries=0)
def send(to: str, text: str = "", *, copies: int = 1) -> dict:
    if "@" not in to:
        raise Permanent(f"not an address: {to}", type="bad_address")
    return {"words": len(text.split()) * copies, "trace": current_job().traceparent}


@app.job("letter.forward")
def forward(to: str) -> str:
    return send.enqueue(to).id


def works(seconds):
    note("start")
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(min(TICK, seconds))
            note("alive")
    except BaseException:
        note("term")
        raise
    note("end")


@app.job("work", retries=9)
def work(seconds):
    works(seconds)


@app.job("work.process", retries=9, run_in="process")
def work_in_process(seconds):
    works(seconds)


@app.job("work.async", retries=9)
async def work_async(seconds):
    note("start")
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(min(TICK, seconds))
            note("alive")
    except BaseException:
        note("term")
        raise
    note("end")


@app.job("deaf", retries=9)
def deaf(seconds):
    note("start")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            time.sleep(TICK)
            note("alive")
        except BaseException:
            pass
