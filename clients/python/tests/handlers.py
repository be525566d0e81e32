"""A program with handlers, as a process of a worker loads it."""

import asyncio
import multiprocessing
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


@app.job("fork.terminate", run_in="process")
def fork_terminate() -> int:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=[60])
    process.start()
    time.sleep(0.2)
    process.terminate()
    process.join(5)
    ended = process.exitcode
    process.kill()
    return ended


@app.job("interrupted", run_in="process")
def interrupted() -> int:
    program = subprocess.Popen(["sleep", "60"])
    program.send_signal(signal.SIGINT)
    try:
        return program.wait(5)
    finally:
        program.kill()
