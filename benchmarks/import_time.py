"""Time of ``import topsign`` and of the first use of an index, each in a new process; fails above a limit."""

import subprocess
import sys
from functools import partial

from shared.results import arguments, interleaved, save, spread, table

PROGRAMS = {
    "python only": "pass",
    "import numpy": "import numpy",
    "import topsign": "import topsign",
    "and the first index": "import topsign; topsign.Index(64, family='grouped', n_bytes=4)",
    "topsign --help": "import sys; sys.argv = ['topsign', '--help']; import topsign.cli; topsign.cli.main()",
}


def run(program):
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, stdout=subprocess.DEVNULL)


def main():
    options = arguments(__doc__, repeats=(9, 2), limit=0.6)
    times = interleaved([partial(run, program) for program in PROGRAMS.values()], options.repeats)
    rows = [[name, spread(1e3 * times[:, i])] for i, name in enumerate(PROGRAMS)]
    save(options, [table("Time of imports", ["program", "ms"], rows, "Each in a new process, wall-clock time.")])
    if rows[2][1]["least"] > 1e3 * options.limit:
        sys.exit(f"import topsign takes longer than {options.limit} s")


if __name__ == "__main__":
    main()
