"""A program with handlers, as a process of a worker loads it."""

import asyncio
import os
import signal
import subprocess
import time

from outlast import Outlast, current_job

app = Outlast("http://127.0.0.1:9")


@app.job("add", run_in="process")
def add(a: int, b: int = 2) -> int:
    return a + b


@app.job("pid", run_in="process")
def pid() -> int:
    return os.getpid()


@app.job("sleep", run_in="process")
def sleep(seconds: float) -> None:
    time.sleep(seconds)


@app.job("sleep.async", run_in="process")
async def sleep_async(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return current_job().id


@app.job("deaf", run_in="process")
def deaf(path: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    helper = subprocess.Popen(["sleep", "60"])
    with open(path, "w") as file:
        file.write(f"{helper.pid}\n")
    time.sleep(60)


@app.job("die", run_in="process")
def die(path: str = "") -> None:
    if path:
        helper = subprocess.Popen(["sleep", "60"])
        with open(path, "w") as file:
            file.write(f"{helper.pid}\n")
    os.kill(os.getpid(), signal.SIGKILL)


@app.job("die.forked", run_in="process")
def die_forked() -> None:
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
