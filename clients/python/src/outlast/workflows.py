"""Workflows in the forms of the Open Job Spec: `chain`, `group`, `batch`, and graphs of steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Union

from .errors import UsageError
from .options import NewJob

#: A job, or a form inside a form.
Part = Union[NewJob, "Form"]


@dataclass(frozen=True)
class Form:
    """Jobs that belong together. Begin it with `Client.start`."""

    kind: str
    parts: Sequence[Part]
    callbacks: Dict[str, NewJob] = field(default_factory=dict)

    def wire(self) -> Dict[str, Any]:
        jobs = "steps" if self.kind == "chain" else "jobs"
        sent: Dict[str, Any] = {"type": self.kind, jobs: [part.wire() for part in self.parts]}
        if self.callbacks:
            sent["callbacks"] = {name: job.wire() for name, job in self.callbacks.items()}
        return sent


def chain(*parts: Part) -> Form:
    """One after another, each when the one before has completed."""
    return Form("chain", parts)


def group(*parts: Part) -> Form:
    """All at the same time."""
    return Form("group", parts)


def batch(
    *parts: Part,
    on_complete: Optional[NewJob] = None,
    on_success: Optional[NewJob] = None,
    on_failure: Optional[NewJob] = None,
) -> Form:
    """All at the same time, and then a callback: in any case, if all completed, if one did not."""
    given = {"on_complete": on_complete, "on_success": on_success, "on_failure": on_failure}
    callbacks = {name: job for name, job in given.items() if job is not None}
    if not callbacks:
        raise UsageError("a batch needs a callback; without any it is a group")
    return Form("batch", parts, callbacks)


class Graph:
    """Steps that wait for others: `Graph("night").step("load", job).step("send", other, "load")`."""

    def __init__(self, name: Optional[str] = None) -> None:
        self.name = name
        self.steps: List[Dict[str, Any]] = []

    def step(self, id: str, job: NewJob, *after: str) -> "Graph":
        """Adds a step that begins when all that it comes after have completed."""
        unknown = set(after) - {step["id"] for step in self.steps}
        if unknown:
            raise UsageError(f"step {id!r} comes after {sorted(unknown)}, which are not there yet")
        step = {"id": id, **job.wire()}
        if after:
            step["depends_on"] = list(after)
        self.steps.append(step)
        return self

    def wire(self) -> Dict[str, Any]:
        name = {} if self.name is None else {"name": self.name}
        return {**name, "steps": self.steps}
