"""Short runs of the fault injection in tests/faults; ``make test-faults`` makes the long runs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
posix = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")
FAULTS = Path(__file__).parent / "faults"


def run(script, *arguments):
    command = [sys.executable, str(FAULTS / script), *map(str, arguments)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    return shown.stdout


needs_shim = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)


@needs_shim
def test_writers_killed_before_a_system_call_lose_nothing():
    shown = run("crash.py", "kill", "--every", 9)
    for verb in ("create", "first add with learning", "save", "upsert", "update_metadata", "calibrate", "erase"):
        assert verb in shown


@needs_shim
def test_losses_of_power_lose_nothing():
    assert "44 losses of power" in run("crash.py", "power", "--states", 44)


@posix
def test_interrupts_are_harmless():
    assert "40 interrupts" in run("interrupt.py", "--rounds", 40)


@posix
def test_concurrent_writers_and_readers_lose_nothing():
    shown = run("crowd.py", "--seconds", 4, "--writers", 2, "--threads", 3, "--readers", 3)
    for words in ("add", "group", "searched"):
        assert words in shown
