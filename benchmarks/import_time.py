"""Processor time of imports and of short commands, each in a new process; fails above the limits."""

import os
import resource
import subprocess
import sys
import tempfile
from functools import partial

from shared.results import arguments, interleaved, save, spread, table

PROGRAMS = {
    "python only": "pass",
    "import numpy": "import numpy",
    "import topsign": "import topsign",
    "and the first index": "import topsign; topsign.Index(64, family='grouped', n_bytes=4)",
}
COMMANDS = {
    "topsign --version": 0.4,
    "topsign --help": 0.4,
    "topsign search index queries.npy": 0.8,
}
"""Limits in seconds, on a machine that does nothing else."""

PREPARE = """
import numpy, topsign
signals = numpy.random.default_rng(0).standard_normal((1000, 64))
topsign.Index(64, family="grouped", n_bytes=8, path="index").add(signals)
numpy.save("queries.npy", signals[:3])
"""


def run(program, *words):
    command = [sys.executable, "-W", "error", "-c", program, *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def processor_time():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    options = arguments(__doc__, repeats=(9, 2), factor=1.0)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run(PREPARE)
        start = "from topsign.cli import main; main()"
        calls = [partial(run, program) for program in PROGRAMS.values()]
        calls += [partial(run, start, *name.split()[1:]) for name in COMMANDS]
        times = interleaved(calls, options.repeats, processor_time)
        os.chdir("/")
    names = [*PROGRAMS, *COMMANDS]
    rows = [[name, spread(1e3 * times[:, i])] for i, name in enumerate(names)]
    note = "User and system time of a new process each."
    save(options, [table("Time of imports and short commands", ["program", "ms"], rows, note)])
    for name, found in rows:
        limit = COMMANDS.get(name, 0.6 if name == "import topsign" else None)
        if limit is not None and found["least"] > 1e3 * options.factor * limit:
            sys.exit(f"{name} takes more than {options.factor * limit:g} s")


if __name__ == "__main__":
    main()
