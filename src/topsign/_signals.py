"""Deferral of signals from a commit to the return of the call that makes it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import repeat
from types import FrameType
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name))
"""Signals whose handlers may raise: Ctrl-C, the end of a service, time limits."""

POLL_SECONDS = 0.001

# The function in C: a Python function would run bytecode, and with it pending handlers, after it has set the handler.
_set_handler: Callable[[int, Any], Any] = getattr(signal.signal, "__wrapped__", signal.signal)


class DeferredSignals:
    """Defers handlers of signals, so that an exception of theirs cannot follow a commit.

    Python runs handlers in the main thread only; in other threads this does nothing. Make one in the function that
    calls :meth:`end`: once that is not running any more, signals are deferred no longer.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[..., Any]] = {}
        self._received: list[int] = []
        self._owner: FrameType | None = sys._getframe(1)

    def begin(self) -> None:
        """Defer signals from now on."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    _set_handler(number, self._receive)

    def end(self) -> None:
        """Restore the handlers; signals that came meanwhile are sent again once the caller has returned.

        The interpreter runs handlers when a function begins, after a call of a C function and when a loop goes back.
        None of these follows the restoration until the public method that made the change has returned.
        """
        self._owner, is_sent = None, False
        while True:
            restore = map(_set_handler, self._handlers, self._handlers.values())
            defer = map(_set_handler, self._handlers, repeat(self._receive))
            if self._received and not is_sent:
                is_sent = True
                threading.Thread(target=self._send_again, daemon=True).start()
            _ = [*restore]
            if is_sent or not self._received:
                return
            _ = [*defer]  # a signal came while handlers were restored: send that too

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._is_abandoned(frame):  # by an exception within `end`, say one that another thread injected
            for one, handler in self._handlers.items():
                _set_handler(one, handler)
            self._handlers[number](number, frame)
        else:
            self._received.append(number)

    def _is_abandoned(self, frame: FrameType | None) -> bool:
        """Return whether neither the deferring function nor `end` is running."""
        while frame is not None:
            if frame is self._owner or frame.f_code is DeferredSignals.end.__code__:
                return False
            frame = frame.f_back
        return True

    def _send_again(self) -> None:
        while any(signal.getsignal(number) == self._receive for number in self._handlers):
            time.sleep(POLL_SECONDS)
        for number in dict.fromkeys(self._received):
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(threading.main_thread().ident or 0, number)
            else:
                signal.raise_signal(number)
