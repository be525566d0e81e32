"""What a process has started, and what that has: found and killed, where `/proc` lists it."""

from __future__ import annotations

import os
import signal
import time
from typing import Dict, List

#: How long to kill for. What waits in the kernel cannot end.
END_MAX = 2.0


def end_descendants(ancestor: int) -> None:
    """Kills them again and again, as some may be starting others, until none is left."""
    end = time.monotonic() + END_MAX
    while True:
        left = descendants(ancestor)
        if not left or time.monotonic() > end:
            return
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except OSError:
                # It has just ended.
                continue
        time.sleep(0.01)


def descendants(ancestor: int) -> List[int]:
    """All of them, from one look: those of one that is killed first would not be found any more."""
    children: Dict[int, List[int]] = {}
    for folder in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        try:
            with open(f"/proc/{folder}/stat", encoding="ascii", errors="replace") as file:
                # The name, in brackets, may hold anything.
                state, parent = file.read().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(folder))
        except (OSError, ValueError):
            # No process, or one that has just ended.
            continue
    found = [ancestor]
    for process in found:
        found += children.get(process, [])
    return found[1:]
