"""A CUDA device: memory, and kernels compiled when they are first needed."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import GpuError, GpuMemoryError, install

Array = Any  # CuPy array, CUDA tensor, or NumPy array if kernels are emulated
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
MINIMUM_CAPABILITY = 80  # for int8 mma of 16 x 8 x 32 and asynchronous copies
INSTALL = f"install a driver and {install('gpu')} for CUDA 13, or the extra gpu-cuda12 for CUDA 12"


class Device:
    """CUDA device, accessed through CuPy. Arrays are C-ordered; copies and launches are ordered by one stream."""

    def __init__(self, number: int = 0) -> None:
        self.number, self.cupy = number, _import_cupy(number)
        self._device = self.cupy.cuda.Device(number)
        attributes = self._device.attributes
        self.name = f"cuda:{number}"
        self.n_processors = int(attributes["MultiProcessorCount"])
        self.shared_bytes = int(attributes["MaxSharedMemoryPerBlockOptin"])
        self.capability = int(self._device.compute_capability)
        self.has_wgmma = self.capability == 90  # instructions of Hopper
        self._modules: dict[tuple[object, ...], Module] = {}

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        return self._allocate(self.cupy.empty, shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        return self._allocate(self.cupy.zeros, shape, dtype)

    def put(self, array: npt.NDArray[Any]) -> Array:
        out = self.empty(array.shape, array.dtype)
        self.copy(array, out)
        return out

    def copy(self, array: npt.NDArray[Any], out: Array) -> None:
        """Copy a host array into a device array."""
        out.set(np.ascontiguousarray(array))

    def get(self, array: Array) -> npt.NDArray[Any]:
        host: npt.NDArray[Any] = array.get()
        return host

    def free_bytes(self) -> int:
        """Return the bytes that can be allocated: free device memory, and free blocks of CuPy's memory pool."""
        with self._device:
            free, _ = self.cupy.cuda.runtime.memGetInfo()
            return int(free) + int(self.cupy.get_default_memory_pool().free_bytes())

    def wait(self) -> None:
        """Synchronize the current stream."""
        self.cupy.cuda.get_current_stream().synchronize()

    def follow(self, last: int | None) -> int | None:
        """Synchronize if the last launch, which shares buffers, was on another stream; return the current one."""
        stream = self.cupy.cuda.get_current_stream()
        if stream.is_capturing():
            return last
        if last not in (None, stream.ptr):
            self._device.synchronize()
        return int(stream.ptr)

    @contextlib.contextmanager
    def background(self) -> Iterator[None]:
        """Use a separate stream, for copies that overlap with a scan."""
        with self._device, self.cupy.cuda.Stream(non_blocking=True):
            yield

    def stream_of(self, array: Array) -> AbstractContextManager[object]:
        """Return the stream for work on this array: PyTorch's current stream for a tensor, else CuPy's."""
        if not hasattr(array, "data_ptr"):
            return self._device  # type: ignore[no-any-return]
        import torch

        stream = torch.cuda.current_stream(array.device)
        number = stream.cuda_stream
        if number == 0:
            return self.cupy.cuda.Stream.null  # type: ignore[no-any-return]
        if hasattr(stream, "__cuda_stream__") and hasattr(self.cupy.cuda.Stream, "from_external"):
            return self.cupy.cuda.Stream.from_external(stream)  # type: ignore[no-any-return]
        return self.cupy.cuda.ExternalStream(number, self.number)  # type: ignore[no-any-return]

    def module(self, files: tuple[str, ...], constants: Mapping[str, int]) -> Module:
        """Return the kernels of some files, compiled with some constants."""
        key = (files, *sorted(constants.items()))
        if key not in self._modules:
            with self._device:
                self._modules[key] = Module(self, source(files, constants), constants)
        return self._modules[key]

    def _allocate(self, make: Any, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        try:
            with self._device:
                return make(shape, dtype)
        except self.cupy.cuda.memory.OutOfMemoryError as error:
            needed = int(np.prod(shape)) * np.dtype(dtype).itemsize
            raise GpuMemoryError(
                f"{self.name} has {self.free_bytes():,} bytes free, and {needed:,} more are needed; free GPU "
                "memory, search fewer queries at a time, give a smaller memory limit so that codes are streamed, or "
                "encode on the CPU"
            ) from error


class Module:
    """Kernels compiled by NVRTC, which CuPy includes; no CUDA toolkit is needed."""

    def __init__(self, device: Device, text: str, constants: Mapping[str, int]) -> None:
        # No fused multiply-add: the rotation must round as on the CPU. "a": instructions specific to Hopper.
        architecture = f"sm_{device.capability}{'a' if constants.get('WGMMA') else ''}"
        defined = [f"-D{name}={value}" for name, value in constants.items()]
        self._driver, self._module = device.cupy.cuda.driver, device.cupy.cuda.function.Module()
        self._module.load(
            compile_cubin(text, (f"-arch={architecture}", "-std=c++17", "-fmad=false", "-default-device", *defined))
        )
        self._kernels: dict[str, Any] = {}
        self._allowed: dict[str, int] = {}  # dynamic shared memory of kernels

    def launch(self, name: str, grid: int | tuple[int, int], block: int, *arguments: object, shared: int = 0) -> None:
        x, y = grid if isinstance(grid, tuple) else (grid, 1)
        if not x or not y:
            return
        if name not in self._kernels:
            self._kernels[name] = self._module.get_function(name)
        kernel = self._kernels[name]
        if shared > self._allowed.get(name, 32 * 1024):  # with static shared memory at most the default limit, 48 KiB
            self._driver.funcSetAttribute(kernel.ptr, MAX_DYNAMIC_SHARED, shared)
            self._allowed[name] = shared
        kernel((x, y), (block,), tuple(map(address, arguments)), shared)


def source(files: tuple[str, ...], constants: Mapping[str, int]) -> str:
    """Return the source of CUDA files of this package, after the common header."""
    folder = importlib.resources.files(__package__) / "cuda"
    common, *others = ((folder / name).read_text() for name in ("common.cuh", *files))
    wgmma = [multiply_tile(2 * constants["QUERIES"])] if constants.get("WGMMA") else []
    return "\n".join([common, *wgmma, *others])


def multiply_tile(columns: int) -> str:
    """Return CUDA code for a wgmma instruction: 64 rows by a number of columns, 32 bytes deep, sums in registers."""
    n = columns // 2
    sums = ", ".join(f"%{i}" for i in range(n))
    bound = ", ".join(f'"+r"(sums[{i}])' for i in range(n))
    return f"""
__device__ __forceinline__ void multiply_tile(int* sums, u64 a, u64 b) {{
    asm volatile(
        "{{ .reg .pred add; setp.ne.b32 add, %{n + 2}, 0;"
        " wgmma.mma_async.sync.aligned.m64n{columns}k32.s32.s8.s8 {{ {sums} }}, %{n}, %{n + 1}, add; }}"
        : {bound}
        : "l"(a), "l"(b), "r"(1));
}}
"""


def compile_cubin(text: str, options: tuple[str, ...]) -> bytes:
    """Return the cubin of a source, cached in CuPy's folder of compiled kernels."""
    from cupy_backends.cuda.libs import nvrtc

    digest = hashlib.sha256("\n".join([text, *options, str(nvrtc.getVersion())]).encode()).hexdigest()[:32]
    folder = Path(os.environ.get("CUPY_CACHE_DIR", Path.home() / ".cupy" / "kernel_cache"))
    path = folder / f"topsign_{digest}.cubin"
    if path.exists():
        return path.read_bytes()
    program = nvrtc.createProgram(text, "topsign.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
        code: bytes = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise GpuError(f"kernels did not compile: {nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)
    with contextlib.suppress(OSError):  # not cached if the folder is read-only
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(f".{os.getpid()}")
        made.write_bytes(code)
        made.replace(path)
    return code


def address(argument: object) -> object:
    """Return the address of an array, a null pointer for None, and a number unchanged."""
    if argument is None:
        return np.uintp(0)
    if isinstance(argument, np.generic):
        return argument
    if isinstance(argument, np.ndarray):
        return np.uintp(argument.ctypes.data)
    if hasattr(argument, "data_ptr"):
        return np.uintp(argument.data_ptr())
    return np.uintp(argument.data.ptr)  # type: ignore[attr-defined]


def empty_like(device: Device, example: Array, shape: tuple[int, ...], dtype: str) -> Array:
    """Return an uninitialised array on the device, or a tensor if the example is one."""
    if hasattr(example, "new_empty"):
        import torch

        return example.new_empty(shape, dtype=getattr(torch, dtype))
    return device.empty(shape, np.dtype(dtype))


def _import_cupy(number: int) -> Any:
    """Return CuPy; raise GpuError unless it is installed and finds a device of this number that is new enough."""
    try:
        import cupy
    except ImportError as error:
        raise GpuError(f"topsign.gpu needs CuPy, which cannot be imported ({error}); {INSTALL}") from error
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:
        raise GpuError(
            f"CuPy {cupy.__version__} is installed, but finds no CUDA device ({error}); {INSTALL}"
        ) from error
    if not 0 <= number < count:
        raise GpuError(f"there is no cuda:{number}: {count} CUDA devices were found, counted from 0")
    capability = int(cupy.cuda.Device(number).compute_capability)
    if capability < MINIMUM_CAPABILITY:
        raise GpuError(
            f"cuda:{number} has compute capability {capability / 10:.1f}, and 8.0 is needed (Ampere or newer); "
            "search on the CPU instead"
        )
    return cupy


@lru_cache(maxsize=16)
def cuda_device(number: int = 0) -> Device:
    """Return the device of this ``number``, with its compiled kernels."""
    return Device(number)


def find_device(device: str | Device) -> Device:
    """Return the device of a name, "cuda" or "cuda:1"; a device is returned unchanged."""
    if isinstance(device, str) or not hasattr(device, "module"):
        return cuda_device(device_number(device))
    return device


def device_number(name: object) -> int:
    """Return the number of a device by its name."""
    found = re.fullmatch(r"cuda(?::(\d+))?", name) if isinstance(name, str) else None
    if found is None:
        raise GpuError(f'the device must be "cuda" or "cuda:" and a number, got {name!r}')
    return int(found[1] or 0)


def on_host(values: Any) -> Any:
    """Copy signals or queries on a CUDA device to NumPy arrays; return others unchanged."""
    if getattr(values, "is_cuda", False):
        return values.detach().float().cpu().numpy()
    if hasattr(values, "__cuda_array_interface__"):
        return values.get()
    return values
