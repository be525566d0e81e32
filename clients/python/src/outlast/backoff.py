"""Pauses between tries: they grow, and differ, so that not everybody comes back at once."""

from __future__ import annotations

import random
import time
from typing import Optional


def now() -> float:
    """Seconds on a clock that also runs while the machine sleeps, where there is one."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class Backoff:
    """From `first` seconds to `longest`, doubling, each between a half and the whole of it."""

    def __init__(self, first: float = 0.05, longest: float = 2.0) -> None:
        self.first, self.longest, self._next = first, longest, first

    def reset(self) -> None:
        self._next = self.first

    def pause(self, asked: Optional[float] = None) -> float:
        """The next pause; at least what the server asks for, and up to a quarter more."""
        due = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._next * 2, self.longest)
        return due if asked is None else max(due, asked * random.uniform(1.0, 1.25))
