"""Emulator of a CUDA device that runs the kernels of ``topsign.gpu`` on the CPU; needs a C++ compiler."""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from topsign.gpu.device import address, source

COMPILER = shutil.which("g++")
HEADER = Path(__file__).with_name("emulated.h")
KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(')
FOLDER = Path(tempfile.gettempdir()) / "topsign-emulated"


class EmulatedDevice:
    """Device with host memory and two multiprocessors, so that blocks and chunks are small."""

    name = "emulated"
    n_processors = 2
    shared_bytes = 227 * 1024
    has_wgmma = False

    def __init__(self) -> None:
        self._modules: dict[tuple[object, ...], EmulatedModule] = {}

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return np.full(int(np.prod(shape)) * np.dtype(dtype).itemsize, 0xAB, np.uint8).view(dtype).reshape(shape)

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return np.zeros(shape, dtype)

    def put(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.array(array, order="C")

    def get(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array.copy()

    def copy(self, array: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
        out[...] = array

    def free_bytes(self) -> int:
        return 2**34

    def wait(self) -> None:
        pass

    def background(self) -> AbstractContextManager[object]:
        return nullcontext()

    def stream_of(self, array: object) -> AbstractContextManager[object]:
        return nullcontext()

    def follow(self, last: int | None) -> int | None:
        return last

    def module(self, files: tuple[str, ...], constants: Mapping[str, int]) -> EmulatedModule:
        key = (files, *sorted(constants.items()))
        if key not in self._modules:
            self._modules[key] = EmulatedModule(source(files, constants), constants)
        return self._modules[key]


class EmulatedModule:
    def __init__(self, text: str, constants: Mapping[str, int]) -> None:
        launchers = "\n".join(
            f'extern "C" void launch_{name}(unsigned x, unsigned y, unsigned block, void** arguments) '
            f"{{ emulated::launch({name}, x, y, block, arguments); }}"
            for name in sorted(set(KERNEL.findall(text)))
        )
        options = [f"-D{name}={value}" for name, value in constants.items()]
        content = f"{text}\n{launchers}\n"
        digest = hashlib.sha256((HEADER.read_text() + content + str(options)).encode()).hexdigest()[:24]
        library = FOLDER / f"{digest}.so"
        if not library.exists():
            self._compile(content, options, library)
        self._library = ctypes.CDLL(str(library))

    @staticmethod
    def _compile(content: str, options: list[str], library: Path) -> None:
        """Compile in a separate folder, because other processes may compile the same source at the same time."""
        FOLDER.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            code, made = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
            code.write_text(content)
            command = [
                str(COMPILER),
                "-std=c++17",
                "-O1",
                "-shared",
                "-fPIC",
                "-ffp-contract=off",
                "-w",
                "-U_FORTIFY_SOURCE",
            ]
            command += ["-include", str(HEADER), *options, str(code), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(done.stderr[:4000])
            made.replace(library)

    def launch(self, name: str, grid: int | tuple[int, int], block: int, *arguments: object, shared: int = 0) -> None:
        x, y = grid if isinstance(grid, tuple) else (grid, 1)
        if not x or not y:
            return
        values = [np.asarray(address(argument)) for argument in arguments]
        kernel = getattr(self._library, f"launch_{name}")
        kernel(x, y, block, (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values)))
