"""Signals that a process of this package handles, and that what it forks does not."""

from __future__ import annotations

import os
import signal
from typing import Any, Callable, Dict, Mapping

#: What was there before, of the signals that are handled now.
caught: Dict[int, Any] = {}


def catch(handlers: Mapping[int, Callable[..., Any]]) -> Callable[[], None]:
    """Handles signals, also those that this process was started with as blocked.

    Returns what undoes it. Call both in the main thread.
    """
    caught.update({number: signal.signal(number, handlers[number]) for number in handlers})
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)

    def restore() -> None:
        for number in handlers:
            signal.signal(number, caught.pop(number))

    return restore


def after_fork() -> None:
    """`Process.terminate()` in a handler ends what the handler has forked."""
    for number in caught:
        signal.signal(number, signal.SIG_DFL)
    caught.clear()


os.register_at_fork(after_in_child=after_fork)
