"""The producer's side: enqueue jobs, wait for them, follow events, schedules, workflows."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import quote, urlencode

from . import context
from .backoff import Backoff
from .errors import Conflict, NotFound, Refused, Unreachable, UsageError, WaitTimeout
from .jobs import Job, Workflow
from .options import Duration, NewJob, Options, seconds
from .transport import Settings, Transport, Unanswered
from .workflows import Form, Graph

#: Most jobs of one request.
BATCH_MAX = 10_000
#: Longest that one request waits for an end.
LONG_WAIT = 20.0


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    #: Where a reader that saves it goes on: `Client.events(after=event.id)`.
    id: str
    #: Such as `job.completed`.
    type: str
    time: str
    #: What it is about, such as `job_id`, `state`, `attempt`, `outcome`.
    data: Mapping[str, Any]


class Client:
    """Talks to an Outlast server, or to any other server of the Open Job Spec.

    `url` may name several servers of one deployment, with commas between them. What is left out is
    read from `OUTLAST_SERVER`, and `OUTLAST_TOKEN` or `OUTLAST_TOKEN_FILE`. Any number of threads
    may use one client. A program of asyncio calls it with `asyncio.to_thread`.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        token: Optional[str] = None,
        token_file: Optional[str] = None,
        ca_file: Optional[str] = None,
        certificate: Optional[Tuple[str, str]] = None,
        tenant: Optional[str] = None,
        timeout: Duration = 10.0,
        retry_for: Duration = 30.0,
    ) -> None:
        settings = Settings(
            url,
            token=token,
            token_file=token_file,
            ca_file=ca_file,
            certificate=certificate,
            tenant=tenant,
            timeout=seconds(timeout),
            retry_for=seconds(retry_for),
        )
        self._transport = Transport(settings)
        # Whether the server has Outlast's own paths, once that is known.
        self._is_outlast: Optional[bool] = None

    def close(self) -> None:
        """Closes its connections."""
        self._transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # Jobs

    def enqueue(self, type: str, args: Sequence[Any] = (), **options: Any) -> Job:
        """Stores a job. It is on the server's disk when this returns.

        `options` are those of `Options`. The request may be repeated: there is one job even so.
        """
        return self.enqueue_job(NewJob(type, args, Options.of(options)))

    def enqueue_job(self, job: NewJob) -> Job:
        key = job.options.idempotency_key or str(uuid.uuid4())
        answer = self._transport.send("POST", "/ojs/v1/jobs", traced(job.wire()), key=key)
        return Job.read(self, answer.get("job") or answer, bool(answer.get("deduplicated")))

    def enqueue_all(
        self, jobs: Sequence[NewJob], idempotency_key: Optional[str] = None
    ) -> List[Job]:
        """Stores up to 10,000 jobs in one request: all of them or none."""
        if len(jobs) > BATCH_MAX:
            raise UsageError(f"{len(jobs)} jobs are too many for one request; {BATCH_MAX} are not")
        if any(job.options.idempotency_key for job in jobs):
            raise UsageError("a batch has one `idempotency_key`: give it to `enqueue_all`")
        if not jobs:
            return []
        sent = [traced(job.wire()) for job in jobs]
        # With `ignore`, the answer to a repeated request could not be the same.
        repeat = not any(
            job.options.unique is not None and job.options.unique.on_conflict == "ignore"
            for job in jobs
        )
        key = idempotency_key or (str(uuid.uuid4()) if repeat else None)
        body = {"jobs": sent}
        answer = self._transport.send("POST", "/ojs/v1/jobs/batch", body, key=key, repeat=repeat)
        return [Job.read(self, job) for job in answer["jobs"]]

    def get(self, id: str) -> Job:
        answer = self._transport.send("GET", f"/ojs/v1/jobs/{quote(id, safe='')}")
        return Job.read(self, answer.get("job") or answer)

    def cancel(self, id: str) -> Job:
        """Cancels a job. Cancelling twice is not an error; one that has ended otherwise is."""
        try:
            answer = self._transport.send("DELETE", f"/ojs/v1/jobs/{quote(id, safe='')}")
        except Conflict:
            job = self.get(id)
            if job.state == "cancelled":
                return job
            raise
        return Job.read(self, answer.get("job") or answer)

    def wait(self, id: str, timeout: Duration = 60.0) -> Job:
        """Waits until a job has ended, however it does. Raises `WaitTimeout`."""
        patience = seconds(timeout)
        end, backoff = time.monotonic() + patience, Backoff()
        last: Optional[Job] = None
        while True:
            try:
                # Looks first: it may be of a server that cannot wait for it.
                last = self._look(f"/ojs/v1/jobs/{quote(id, safe='')}", Job, end) or last
            except Unreachable:
                pass
            if last is not None and last.has_ended:
                return last
            left = end - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"job {id}", patience, last)
            if not self._long_wait(f"/api/v1/executions/{quote(id, safe='')}", left):
                time.sleep(min(backoff.pause(), left))

    def _look(self, path: str, kind: Any, end: float) -> Any:
        left = max(end - time.monotonic(), 0.0)
        patience = min(left, self._transport.settings.retry_for)
        try:
            answer = self._transport.send("GET", path, retry_for=patience)
        except Refused as refused:
            # Until the time is over the server may come back.
            if refused.status >= 500:
                return None
            raise
        return kind.read(self, answer.get("job") or answer)

    def _long_wait(self, path: str, left: float) -> bool:
        """Waits in one request for the end of something, at a server that can."""
        if self._is_outlast is False:
            return False
        wait = min(left, LONG_WAIT)
        try:
            self._transport.once(
                "GET", f"{path}?wait={wait:.3f}s", timeout=wait + self._transport.settings.timeout
            )
        except (NotFound, Refused) as refused:
            if refused.status in (404, 405, 501):
                self._is_outlast = False
            return False
        except Unanswered:
            return False
        self._is_outlast = True
        return True

    # Events

    def events(
        self,
        *,
        job: Optional[str] = None,
        types: Sequence[str] = (),
        queues: Sequence[str] = (),
        after: Optional[str] = None,
    ) -> Iterator[Event]:
        """Follows events, from now on, or after the event with the id `after`.

        It reconnects by itself and goes on after the last event, so none is missed or repeated.
        The events of one job are all of them, and end with the job.
        """
        query = {"job_id": job, "types": ",".join(types), "queues": ",".join(queues)}
        asked = {name: value for name, value in query.items() if value}
        first: List[Event] = []
        if after is None:
            # What has happened to a job so far, or where all events are now: nothing is missed if
            # the connection is lost before the first event.
            page = dict(asked) if job is not None else {"newest": "true", "limit": "1"}
            try:
                path = f"/api/v1/events?{urlencode({**page, 'stream': 'false'})}"
                answer = self._transport.send("GET", path)
            except Refused as refused:
                if refused.status not in (404, 405):
                    raise
                return self._polled_events(asked, after)
            first = [event_of(raw) for raw in answer["data"]] if job is not None else []
            after = first[-1].id if first else answer.get("next_cursor")
        return itertools.chain(first, self._follow(asked, after))

    def _follow(self, query: Mapping[str, str], after: Optional[str]) -> Iterator[Event]:
        backoff = Backoff()
        while True:
            try:
                path = f"/api/v1/events?{urlencode(query)}"
                with closing(self._transport.stream(path, after)) as lines:
                    if lines.is_over:
                        return
                    for event in read_events(lines):
                        after = event.id
                        backoff.reset()
                        yield event
                time.sleep(backoff.pause())
            except Unanswered:
                time.sleep(backoff.pause())
            except Refused as refused:
                if refused.status in (404, 405):
                    yield from self._polled_events(query, after)
                    return
                if not refused.is_for_now:
                    raise
                time.sleep(backoff.pause(refused.retry_after))

    def _polled_events(self, query: Mapping[str, str], after: Optional[str]) -> Iterator[Event]:
        """The standard's own way, for servers without a stream."""
        backoff = Backoff(0.2, 2.0)
        while True:
            asked = {**query, "after": after} if after else query
            answer = self._transport.send("GET", f"/ojs/v1/events?{urlencode(asked)}")
            found = [event_of(raw) for raw in answer.get("events") or []]
            yield from found
            after = answer.get("next_cursor") or (found[-1].id if found else after)
            if found:
                backoff.reset()
                continue
            if query.get("job_id") and self.get(query["job_id"]).has_ended:
                return
            time.sleep(backoff.pause())

    # Workflows

    def start(
        self,
        workflow: Union[Form, Graph],
        *,
        name: Optional[str] = None,
        idempotency_key: Optional[str] = None,
    ) -> Workflow:
        """Begins a workflow: `chain(…)`, `group(…)`, `batch(…)` or a `Graph`."""
        body = workflow.wire()
        if name is not None:
            body["name"] = name
        key = idempotency_key or str(uuid.uuid4())
        return Workflow.read(self, self._transport.send("POST", "/ojs/v1/workflows", body, key=key))

    def get_workflow(self, id: str) -> Workflow:
        return Workflow.read(self, self._transport.send("GET", workflow_path(id)))

    def cancel_workflow(self, id: str) -> Workflow:
        return Workflow.read(self, self._transport.send("DELETE", workflow_path(id)))

    def wait_workflow(self, id: str, timeout: Duration = 60.0) -> Workflow:
        """Waits until a workflow has ended, however it does. Raises `WaitTimeout`."""
        patience = seconds(timeout)
        end, backoff = time.monotonic() + patience, Backoff()
        last: Optional[Workflow] = None
        while True:
            try:
                last = self._look(workflow_path(id), Workflow, end) or last
            except Unreachable:
                pass
            if last is not None and last.has_ended:
                return last
            left = end - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"workflow {id}", patience, last)
            if not self._long_wait(f"/api/v1/workflows/{quote(id, safe='')}", left):
                time.sleep(min(backoff.pause(), left))

    # Schedules

    def schedule(
        self,
        name: str,
        cron: str,
        job: NewJob,
        *,
        time_zone: Optional[str] = None,
        overlap: Optional[str] = None,
    ) -> Mapping[str, Any]:
        """Sets a schedule, or changes it: `job` is enqueued at the times of `cron`.

        `overlap` says what happens while the job before has not ended: `skip`, `allow`,
        `cancel_previous` or `enqueue`.
        """
        sent = job.wire()
        body: Dict[str, Any] = {"name": name, "cron": cron, **sent}
        for field, value in (("timezone", time_zone), ("overlap_policy", overlap)):
            if value is not None:
                body[field] = value
        return cron_of(self._transport.send("POST", "/ojs/v1/cron", body))

    def schedules(self) -> List[Mapping[str, Any]]:
        answer = self._transport.send("GET", "/ojs/v1/cron")
        return list(answer.get("crons") or answer.get("cron_jobs") or [])

    def pause_schedule(self, name: str) -> Mapping[str, Any]:
        return self._switch(name, False)

    def resume_schedule(self, name: str) -> Mapping[str, Any]:
        return self._switch(name, True)

    def _switch(self, name: str, enabled: bool) -> Mapping[str, Any]:
        path = f"/ojs/v1/cron/{quote(name, safe='')}"
        return cron_of(self._transport.send("PATCH", path, {"enabled": enabled}))

    def remove_schedule(self, name: str) -> None:
        """Removes a schedule. Its jobs stay; that it is not there is not an error."""
        try:
            self._transport.send("DELETE", f"/ojs/v1/cron/{quote(name, safe='')}")
        except NotFound:
            pass


def cron_of(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = answer.get("cron") or answer
    return found


def workflow_path(id: str) -> str:
    return f"/ojs/v1/workflows/{quote(id, safe='')}"


def traced(job: Dict[str, Any]) -> Dict[str, Any]:
    """With the trace of the job that enqueues it, if there is one and it says nothing else."""
    current = context.find()
    if current is not None and current.traceparent:
        meta = job.setdefault("meta", {})
        meta.setdefault("traceparent", current.traceparent)
    return job


def event_of(raw: Mapping[str, Any], id: Optional[str] = None) -> Event:
    return Event(
        id=id or str(raw.get("id", "")),
        type=str(raw.get("type", "")),
        time=str(raw.get("time", "")),
        data=raw.get("data") or {},
    )


def read_events(lines: Any) -> Iterator[Event]:
    """Reads Server-Sent Events: a cursor in `id`, and JSON in `data`."""
    id: Optional[str] = None
    data: List[str] = []
    for line in lines:
        name, _colon, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if not line and data:
            yield event_of(json.loads("\n".join(data)), id)
            data = []
        elif name == "id":
            id = value
        elif name == "data":
            data.append(value)
