"""Run command lines of a page one after another in this process: ["topsign", ...], ["python", "-c", ...], ["rm", ...].

Reads them as JSON from standard input, and writes what each printed as JSON to standard output. One process for many
commands: most of the time of a short one is its imports.
"""

import contextlib
import io
import json
import runpy
import shutil
import sys


def run(program, *arguments):
    """Return the output of a command."""
    shown = io.StringIO()
    sys.argv = [program, *arguments]
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        if program == "topsign":
            from topsign.cli import main

            main()
        elif program == "rm":
            (option, folder) = arguments
            assert option == "-rf"
            assert folder.replace("-", "").isalnum(), "only folders made here are removed"
            shutil.rmtree(folder, ignore_errors=True)
        elif arguments[0] == "-c":
            exec(arguments[1], {"__name__": "__main__"})
        else:
            sys.argv = list(arguments)
            runpy.run_path(arguments[0], run_name="__main__")
    return shown.getvalue()


if __name__ == "__main__":
    commands = json.load(sys.stdin)
    answers = [run(*command) for command in commands]
    json.dump(answers, sys.stdout)
