#!/usr/bin/env python3
"""The load of trial.sh, and the judgement on what became of it. Needs nothing but Python.

FOLDER has these files, with a line for each fact:
  acked     time, id and kind of each job that a server has acknowledged
  refused   time and answer of each request that was not
  primary   time and name of each node that Patroni says is the primary
  happened  time and name of what trial.sh did
  ledger    uptime, id, epoch and start, alive or end: what jobs themselves write
"""
import argparse
import collections
import datetime
import http.client
import json
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

PAUSE = 0.1
# Half seconds that one job in fifty takes, so that it runs on while the primary changes.
LONG = 90
# How long all jobs may take to end after the last one was enqueued.
BOUND = 240
STORE_EVENTS = ",".join(f"store.{what}_lost" for what in ("job", "claim", "result", "order"))
STORE_EVENTS += ",store.failed_over"
ENDED = {"completed", "failed", "cancelled", "timeout", "abandoned"}


def request(url, body=None, headers=None, timeout=10):
    """Returns status and text; raises OSError or HTTPException if there is no answer."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(asked, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Notes:
    """A file of facts that threads append to."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1)
        self.lock = threading.Lock()

    def add(self, *words):
        with self.lock:
            self.file.write(" ".join([f"{time.time():.3f}", *words]) + "\n")


def produce(options):
    """Enqueues jobs, each until it is acknowledged, until there is a file named stop."""
    folder = options.folder
    acked, refused = Notes(f"{folder}/acked"), Notes(f"{folder}/refused")
    primary = Notes(f"{folder}/primary")
    servers = options.servers.split(",")

    def stopped():
        return os.path.exists(f"{folder}/stop")

    def producer(name):
        n = 0
        while not stopped():
            n += 1
            ticks, overlap = [(1, "forbidden"), (1, "allowed"), (0, "allowed")][n % 3]
            if n % 50 == 25:
                ticks, overlap = LONG, ["forbidden", "allowed"][n // 50 % 2]
            body = {
                "action_ref": "trial.note",
                "parameters": {"ledger": f"{folder}/ledger", "ticks": ticks},
                "overlap": overlap,
            }
            key = {"idempotency-key": f"{name}-{n}"}
            turn = n
            while True:
                try:
                    server = servers[turn % len(servers)]
                    status, text = request(f"{server}/api/v1/executions", body, key)
                    if status in (200, 201):
                        acked.add(json.loads(text)["data"]["id"], overlap)
                        break
                    said = f"{status} {text}"
                except (OSError, http.client.HTTPException) as error:
                    said = f"- {error!r}"
                refused.add(" ".join(said.split()))
                turn += 1
                time.sleep(PAUSE)
                if stopped():
                    return
            time.sleep(PAUSE)

    def watch():
        last = None
        while not stopped():
            for node in options.patronis.split(","):
                name, url = node.split("=", 1)
                try:
                    if request(f"{url}/primary", timeout=1)[0] == 200 and name != last:
                        primary.add(name)
                        last = name
                except (OSError, http.client.HTTPException):
                    pass
            time.sleep(0.2)

    threads = [threading.Thread(target=watch)]
    threads += [threading.Thread(target=producer, args=(f"p{n}",)) for n in range(options.producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def rows(path, parts):
    if not os.path.exists(path):
        return []
    with open(path) as lines:
        return [line.rstrip("\n").split(" ", parts - 1) for line in lines]


def read(servers, path):
    """Returns what the first server that can says: status and document."""
    said = None
    for _ in range(100):
        for server in servers:
            try:
                status, text = request(server + path)
                if status in (200, 404):
                    return status, json.loads(text)
                said = f"{status} {text}"
            except (OSError, http.client.HTTPException) as error:
                said = repr(error)
        time.sleep(0.2)
    sys.exit(f"no server answers: {said}")


def causes_by_second(path):
    """Names of the log's causes: numbers and ids are not part of them."""
    causes = collections.Counter()
    with open(path, errors="replace") as lines:
        for line in lines:
            try:
                fact = json.loads(line)
                second, words = fact["timestamp"][:19], f"{fact['level']} {fact['message']}"
            except (ValueError, KeyError, TypeError):
                second, words = "", f"(no JSON) {line.strip()}"
            causes[(re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "#", words)[:120], second)] += 1
    return causes


def judge(options):
    servers, folder = options.servers.split(","), options.folder
    acked = [(float(at), job, kind) for at, job, kind in rows(f"{folder}/acked", 3)]
    kinds = {job: kind for _, job, kind in acked}
    # Wait until all have ended.
    end = time.monotonic() + BOUND
    open_jobs, found = set(kinds), {}
    while open_jobs:
        for job in list(open_jobs):
            status, document = read(servers, f"/api/v1/executions/{job}")
            found[job] = document["data"] if status == 200 else None
            if status == 404 or document["data"]["status"] in ENDED:
                open_jobs.discard(job)
        if time.monotonic() > end:
            break
        if open_jobs:
            time.sleep(1)
    # Of each job: of each epoch when it began and was last heard of, in the ledger's order.
    runs, ends, again = collections.defaultdict(dict), set(), set()
    for at, job, epoch, what in rows(f"{folder}/ledger", 4):
        if what == "start" and epoch in runs[job]:
            again.add(job)
        runs[job].setdefault(epoch, [float(at), 0])[1] = float(at)
        if what == "end":
            ends.add(job)
    named = collections.defaultdict(list)
    _, page = read(servers, f"/api/v1/events?stream=false&type={STORE_EVENTS}&limit=1000")
    for event in page["data"]:
        name = event.get("type", "?").split("org.openjobspec.")[-1]
        named[name].append((event.get("data") or {}).get("job_id"))

    def overlaps(job):
        spans = sorted(runs[job].values())
        return any(later[0] < before[1] for before, later in zip(spans, spans[1:]))

    lost = {job for job, what in found.items() if what is None}
    told = {job for name, jobs in named.items() if name.endswith("store.job_lost") for job in jobs}
    twice = {job for job, epochs in runs.items() if len(epochs) > 1}
    forbidden = {job for job in twice if kinds.get(job) == "forbidden"}
    overlapped = {job for job in twice if overlaps(job)}
    wrong = (overlapped & forbidden) | open_jobs | (lost if options.mode == "sync" else lost - told)
    statuses = collections.Counter("lost" if it is None else it["status"] for it in found.values())
    unrun = {job for job, it in found.items() if it and it["status"] == "completed" and job not in ends}

    print(f"acknowledged: {len(acked)} answers, {len(kinds)} jobs: {dict(statuses)}")
    print(f"lost: {len(lost)}, of which named in store.job_lost: {len(lost & told)};"
          f" named and not lost: {len(told - lost)}")
    print(f"not ended: {len(open_jobs)}; completed without a run: {len(unrun)}")
    print(f"run more than once: {len(twice)}, of which overlap is forbidden: {len(forbidden)};"
          f" two runs at the same time: {len(overlapped)}, where forbidden: {len(overlapped & forbidden)}")
    for job in sorted(twice | open_jobs | unrun)[:30]:
        what = found.get(job) or {}
        print(f"    {job} {kinds.get(job)} {dict(runs[job])} {what.get('status')} losses {what.get('losses')}")
    print(f"began twice under the same epoch: {len(again)} {sorted(again)[:5]}")
    print(f"run and never acknowledged: {len(set(runs) - set(kinds))}")
    for name, jobs in named.items():
        print(f"{len(jobs)} events {name}, of which about jobs that are lost: {len(lost & set(jobs))}")

    happened = [(float(at), what) for at, what in rows(f"{folder}/happened", 2)]
    primaries = [(float(at), name) for at, name in rows(f"{folder}/primary", 2)]
    refused = [(float(at), said) for at, said in rows(f"{folder}/refused", 2)]
    times = sorted(at for at, _, _ in acked)
    for n, (at, what) in enumerate(happened):
        until = happened[n + 1][0] if n + 1 < len(happened) else times[-1]
        # The longest time without an acknowledgement is the event's.
        within = [it for it in times if at - 1 <= it <= until]
        gap, after = max(((b - a, b) for a, b in zip(within, within[1:])), default=(0, at))
        new = [it for it, _ in primaries if at < it <= until]
        said = f"{what}: no acknowledgement for {gap:.1f} s; the first one after {after - at:.1f} s"
        if new:
            said += f", {after - new[0]:.1f} s after Patroni named the new primary"
        print(said)
        causes = collections.Counter(re.sub(r'"request_id.*|\d{4,}', "", said)[:200]
                                     for it, said in refused if at - 1 <= it <= until)
        for said, count in causes.most_common(6):
            print(f"    refused {count} times: {said}")

    begin = datetime.datetime.fromtimestamp(happened[0][0], datetime.timezone.utc)
    worst = 0
    for name in ("s1", "s2", "w1", "w2"):
        print(f"log of {name}: times, most in one second, cause; since the first event")
        most, total = collections.Counter(), collections.Counter()
        for (words, second), count in causes_by_second(f"{options.logs}/{name}").items():
            if second and second < begin.strftime("%Y-%m-%dT%H:%M:%S"):
                continue
            total[words] += count
            if second:
                most[words] = max(most[words], count)
        for words, count in total.most_common():
            print(f"    {count:4} {most[words]:3} {words}")
        worst = max([worst, *most.values()])
    print(f"most lines of one cause in one second: {worst}")

    wrong |= unrun | again
    wrong |= {job for job, it in found.items() if it and it["status"] in ENDED - {"completed"}}
    print("verdict: as it should be" if not wrong else f"verdict: WRONG, {len(wrong)} jobs")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["produce", "judge"])
    parser.add_argument("--servers", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--producers", type=int, default=3)
    parser.add_argument("--patronis", default="")
    parser.add_argument("--logs", default="")
    parser.add_argument("--mode", default="async")
    options = parser.parse_args()
    if options.what == "produce":
        produce(options)
        return 0
    return judge(options)


if __name__ == "__main__":
    sys.exit(main())
