"""Uses every part of the producer, and prints what came of it as JSON."""

import json
import time

from outlast import (
    Client,
    Conflict,
    Graph,
    JobFailed,
    NotFound,
    Unique,
    WaitTimeout,
    WorkflowFailed,
    batch,
    chain,
    group,
)
from tasks import app, forward, send

client = app.client
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
said = {}

said["result"] = (
    send.using(meta={"traceparent": TRACE}).enqueue("ada@x", text="a b", copies=2).wait_result()
)
forwarded = forward.job("ada@x").using(meta={"traceparent": TRACE})
inner = client.enqueue_job(forwarded).wait_result()
said["inner_trace"] = client.get(inner).wait_result()["trace"]
try:
    send.enqueue("ada").wait_result()
except JobFailed as failed:
    said["error"] = [failed.job.state, failed.job.error["type"], failed.job.error["message"]]
said["untyped"] = app.enqueue("letter.send", ["ada@x", "one", {"copies": 3}]).wait_result()["words"]
said["unknown"] = app.enqueue("letter.burn", retries=0).wait().error["type"]

jobs = client.enqueue_all([send.job("ada@x", str(n)) for n in range(20)])
said["batch"] = sorted({job.wait().state for job in jobs}) + [len({job.id for job in jobs})]

keyed = send.using(idempotency_key="letter-7")
said["same_key"] = keyed.enqueue("ada@x").id == keyed.enqueue("ada@x").id
try:
    keyed.enqueue("bob@x")
    said["other_body"] = "stored"
except Conflict as conflict:
    said["other_body"] = conflict.status

once = send.using(unique=Unique(on_conflict="ignore"), delay=3600)
first, second = once.enqueue("una@x"), once.enqueue("una@x")
said["unique"] = [first.id == second.id, second.deduplicated, first.state]
try:
    first.wait(0.2)
except WaitTimeout as timeout:
    said["waited"] = timeout.last.state
said["cancelled"] = [first.cancel().state, first.cancel().state]
try:
    client.get("01a1fcae-2d50-72c9-9c67-56e57a9c8e21")
except NotFound as missing:
    said["missing"] = missing.code

events = client.events(types=["job.completed"])
watched = send.enqueue("eve@x")
said["followed"] = next(event for event in events if event.data["job_id"] == watched.id).type
said["events"] = [event.type for event in watched.events()]
resumed = client.events(job=watched.id, after=next(watched.events()).id)
said["resumed"] = next(resumed).type

to = send.job("ada@x")
said["chain"] = client.start(chain(to, group(to, to)), name="three").wait().state
said["callback"] = client.start(batch(to, send.job("ada"), on_failure=to)).wait().state
said["graph"] = client.start(Graph("two").step("a", to).step("b", to, "a")).wait().name
try:
    client.start(chain(send.job("ada"), to)).wait()
except WorkflowFailed as failed:
    said["failed"] = failed.workflow.state

said["schedule"] = client.schedule("yearly", "0 2 1 1 *", to, time_zone="Europe/Vienna")[
    "next_run_at"
][-10:]
said["paused"] = [
    client.pause_schedule("yearly")["enabled"],
    client.resume_schedule("yearly")["enabled"],
]
client.remove_schedule("yearly")
client.remove_schedule("yearly")
said["schedules"] = len(client.schedules())

with Client("http://127.0.0.1:9", retry_for=0) as lonely:
    began = time.monotonic()
    try:
        lonely.enqueue("t")
    except Exception as error:
        said["away"] = [type(error).__name__, time.monotonic() - began < 5]
print(json.dumps(said))
