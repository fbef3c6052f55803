"""Run the command lines of a page in this process: ["topsign", ...], ["python", "-c", ...], ["rm", ...].

Commands are read as JSON from standard input, and their outputs are written as JSON to standard output. One process
runs all commands, because a short command spends most of its time on imports.
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
