"""Enqueue jobs and run them, on an Outlast server or any other of the Open Job Spec.

app = Outlast("http://localhost:8080")

@app.job("email.send", retries=5, queue="mail")
def send(to: str, body: str) -> dict: ...

send.enqueue("a@example.org", body="hi")    # a producer
app.run(concurrency=8)                      # a worker; or: outlast-worker mymodule:app
"""

from .app import Outlast, Task
from .client import Client, Event
from .context import JobContext, current_job
from .errors import (
    Conflict,
    JobCancelled,
    JobFailed,
    NotFound,
    OutlastError,
    Permanent,
    QueueFull,
    Refused,
    Unreachable,
    UsageError,
    WaitTimeout,
    WorkflowFailed,
)
from .jobs import Job, Workflow
from .options import NewJob, Options, Retry, Unique
from .worker import Worker
from .workflows import Graph, batch, chain, group

__version__ = "0.1.0"

__all__ = [
    "Client",
    "Conflict",
    "Event",
    "Graph",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobFailed",
    "NewJob",
    "NotFound",
    "Options",
    "Outlast",
    "OutlastError",
    "Permanent",
    "QueueFull",
    "Refused",
    "Retry",
    "Task",
    "Unique",
    "Unreachable",
    "UsageError",
    "WaitTimeout",
    "Worker",
    "Workflow",
    "WorkflowFailed",
    "batch",
    "chain",
    "current_job",
    "group",
]
