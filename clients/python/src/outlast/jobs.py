"""Jobs and workflows as the server shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional

from .errors import JobFailed, WorkflowFailed
from .options import Duration

if TYPE_CHECKING:
    from .client import Client, Event

#: States in which a job has ended.
ENDED = ("completed", "cancelled", "discarded")
#: States in which a workflow has ended.
WORKFLOW_ENDED = ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class Job:
    """A stored job, as it was when it was last looked at."""

    id: str
    type: str
    state: str
    queue: str
    args: List[Any]
    #: Which attempt is the latest, from 1. Those that were interrupted do not count.
    attempt: int
    result: Any
    error: Optional[Mapping[str, Any]]
    #: Whether it was stored before, and this request found it (`Unique`, `on_conflict="ignore"`).
    deduplicated: bool
    #: Everything that the server said.
    raw: Mapping[str, Any]
    client: "Client"

    @classmethod
    def read(cls, client: "Client", raw: Mapping[str, Any], deduplicated: bool = False) -> "Job":
        return cls(
            id=str(raw["id"]),
            type=str(raw.get("type", "")),
            state=str(raw.get("state", "")),
            queue=str(raw.get("queue", "")),
            args=list(raw.get("args") or []),
            attempt=int(raw.get("attempt") or 0),
            result=raw.get("result"),
            error=raw.get("error"),
            deduplicated=deduplicated or bool(raw.get("deduplicated")),
            raw=raw,
            client=client,
        )

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def meta(self) -> Dict[str, Any]:
        return dict(self.raw.get("meta") or {})

    def refresh(self) -> "Job":
        """The job as it is now."""
        return self.client.get(self.id)

    def cancel(self) -> "Job":
        """Cancels it. Cancelling twice is not an error."""
        return self.client.cancel(self.id)

    def wait(self, timeout: Duration = 60.0) -> "Job":
        """Waits until it has ended, however it does."""
        return self.client.wait(self.id, timeout)

    def wait_result(self, timeout: Duration = 60.0) -> Any:
        """Waits for its result. Raises `JobFailed` if it ends without one."""
        job = self.wait(timeout)
        if job.state != "completed":
            raise JobFailed(job)
        return job.result

    def events(self) -> Iterator["Event"]:
        """Follows what happens to it, to its end."""
        return self.client.events(job=self.id)


@dataclass(frozen=True)
class Workflow:
    """A workflow, as it was when it was last looked at."""

    id: str
    name: Optional[str]
    #: `running`, `completed`, `failed` or `cancelled`.
    state: str
    #: Its steps, with their states and results.
    steps: List[Mapping[str, Any]]
    raw: Mapping[str, Any]
    client: "Client"

    @classmethod
    def read(cls, client: "Client", answer: Mapping[str, Any]) -> "Workflow":
        raw = answer.get("workflow") or answer
        return cls(
            id=str(raw["id"]),
            name=raw.get("name"),
            state=str(raw.get("state", "")),
            steps=list(raw.get("steps") or []),
            raw=raw,
            client=client,
        )

    @property
    def has_ended(self) -> bool:
        return self.state in WORKFLOW_ENDED

    def refresh(self) -> "Workflow":
        return self.client.get_workflow(self.id)

    def cancel(self) -> "Workflow":
        return self.client.cancel_workflow(self.id)

    def wait(self, timeout: Duration = 60.0) -> "Workflow":
        """Waits until it has ended. Raises `WorkflowFailed` if it did not complete."""
        workflow = self.client.wait_workflow(self.id, timeout)
        if workflow.state != "completed":
            raise WorkflowFailed(workflow)
        return workflow
