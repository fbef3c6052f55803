"""Loader of the compiled library and its kernels for each instruction set."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int32
from functools import cache
from pathlib import Path

from .structs import FUNCTIONS, CRun

INTERFACE = 15
"""Must equal ts_interface() of the library, so that a stale build is refused."""


def library_file() -> Path:
    """Return the compiled library in the folder of this module; raise OSError if there is none."""
    from . import __path__ as folders  # an editable installation has the library in a folder of its own

    for folder in folders:
        for file in sorted(Path(folder).glob("topsign_core.*")):
            if file.suffix in {".so", ".dll", ".dylib"}:
                return file
    raise OSError("there is no compiled library in topsign/kernels")


@cache
def load_library() -> ctypes.CDLL:
    """Load the compiled library; raise OSError with the reason if this fails."""
    file = library_file()
    library = ctypes.CDLL(str(file))
    if library.ts_interface() != INTERFACE:
        raise OSError(f"{file} was built from other sources")
    library.ts_path_name.argtypes, library.ts_path_name.restype = (c_int32,), c_char_p
    library.ts_path_runs_here.argtypes, library.ts_path_runs_here.restype = (c_int32,), c_int32
    library.ts_set_grain.argtypes, library.ts_set_grain.restype = (c_double,), None
    for name, types in FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = (POINTER(CRun), *types), c_int32
    return library


def all_native_paths() -> dict[str, int]:
    """Return the numbers of the paths in the library by name, from the slowest to the fastest."""
    library = load_library()
    paths: dict[str, int] = {}
    while (name := library.ts_path_name(len(paths))) is not None:
        paths[name.decode()] = len(paths)
    return paths


def native_paths() -> dict[str, int]:
    """Return those of them that this processor can run."""
    library = load_library()
    return {name: number for name, number in all_native_paths().items() if library.ts_path_runs_here(number)}
