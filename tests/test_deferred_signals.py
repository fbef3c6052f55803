"""Signals that arrive between a commit and the return of its call are deferred and not lost."""

import signal
import sys
import threading
import time

import pytest

from topsign import _signals
from topsign._signals import DeferredSignals

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")


def call(before_end=None):
    """Make a change and return its result even if signals arrive."""
    deferred = DeferredSignals()
    try:
        deferred.begin()
        if before_end:
            before_end()
        return "stored"
    finally:
        deferred.end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGALRM])
def test_a_deferred_signal_runs_its_handler_after_the_call(number, monkeypatch):
    received, plain = [], signal.getsignal(number)
    signal.signal(number, lambda *_: received.append(number))
    try:
        assert call(lambda: (signal.raise_signal(number), received.append("call"))) == "stored"
        deadline = time.monotonic() + 30
        while len(received) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert received == ["call", number]
    finally:
        signal.signal(number, plain)


@pytest.mark.parametrize("at", [0, 1])
def test_a_signal_while_handlers_are_restored_is_not_lost(at, monkeypatch):
    """The signal arrives after the deferral has checked for signals, so one check is not enough."""
    plain, calls, returned = _signals._set_handler, [], []

    def late(number, handler):
        if handler is signal.default_int_handler and len(calls) <= at:
            calls.append(number)
            signal.raise_signal(signal.SIGINT)  # the deferring handler receives it
        return plain(number, handler)

    monkeypatch.setattr(_signals, "_set_handler", late)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  (it comes later than the call)
        returned.append(call())
        time.sleep(5)
    assert returned == ["stored"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_and_ignored_signals_are_left_alone():
    plain, found = signal.getsignal(signal.SIGTERM), []
    thread = threading.Thread(target=lambda: found.append(call(lambda: found.append(signal.getsignal(signal.SIGINT)))))
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler, "stored"]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert call(lambda: signal.raise_signal(signal.SIGTERM)) == "stored"
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, plain)


def test_a_deferral_that_was_abandoned_swallows_nothing():
    """An exception injected by another thread may end a call inside the deferral."""

    def abandoned():
        DeferredSignals().begin()

    abandoned()
    assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    abandoned()
    assert call() == "stored"
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
