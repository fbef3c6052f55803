"""A CUDA device: memory, and kernels compiled when they are first needed."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import GpuError, GpuMemoryError, install

Array = Any  # CuPy array, or NumPy array if kernels are emulated
Kernel = Any
Launch = tuple[Kernel, tuple[int, int], tuple[int], tuple[object, ...], int, list[tuple[int, int]]]
"""Kernel, grid, block, arguments, shared memory, and the arguments that a replay replaces by which array."""

MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
GRAPHS = 4  # CUDA graphs per recording
MINIMUM_CAPABILITY = 80  # for int8 mma of 16 x 8 x 32 and asynchronous copies
INSTALL = f"install a driver and {install('gpu')} for CUDA 13, or the extra gpu-cuda12 for CUDA 12"


class Device(Protocol):
    """Interface of a device. Arrays are C-ordered; copies and launches are ordered by one stream."""

    name: str
    n_processors: int
    shared_bytes: int  # maximum shared memory per block
    has_wgmma: bool  # whether it has Hopper's wgmma instructions

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array: ...
    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array: ...
    def put(self, array: npt.NDArray[Any]) -> Array: ...
    def get(self, array: Array) -> npt.NDArray[Any]: ...
    def copy(self, array: npt.NDArray[Any], out: Array) -> None: ...
    def free_bytes(self) -> int: ...
    def record(self, arrays: tuple[Array, ...]) -> AbstractContextManager[Recording]: ...
    def wait(self) -> None: ...
    def background(self) -> AbstractContextManager[object]: ...
    def stream_of(self, array: Array) -> AbstractContextManager[object]: ...
    def module(self, files: tuple[str, ...], constants: Mapping[str, int]) -> Module: ...


class Recording(Protocol):
    """Recorded launches of one call."""

    def replay(self, arrays: tuple[Array, ...]) -> None:
        """Launch the recorded kernels with these arrays in place of the recorded ones."""


class Module(Protocol):
    """Kernels of some files, compiled with some constants."""

    def launch(
        self, name: str, grid: int | tuple[int, int], block: int, *arguments: object, shared: int = 0
    ) -> None: ...
    def resident_blocks(self, name: str, block: int, shared: int) -> int: ...


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


class CudaDevice:
    """CUDA device, accessed through CuPy."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.cupy = _import_cupy()
        _check_device(self.cupy, number)
        self._device = self.cupy.cuda.Device(number)
        attributes = self._device.attributes
        self.name = f"cuda:{number}"
        self.n_processors = int(attributes["MultiProcessorCount"])
        self.shared_bytes = int(attributes["MaxSharedMemoryPerBlockOptin"])
        self.capability = int(self._device.compute_capability)
        self.has_wgmma = self.capability == 90
        self._modules: dict[tuple[object, ...], CudaModule] = {}
        self.recording = threading.local()  # per thread: launches, and the addresses of replaceable arrays

    def __enter__(self) -> CudaDevice:
        self._device.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._device.__exit__(*error)

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

    @contextlib.contextmanager
    def record(self, arrays: tuple[Array, ...]) -> Iterator[CudaRecording]:
        """Record the launches of this thread, which also run, for replay with other arrays."""
        made = CudaRecording(self.cupy)
        self.recording.now = made.launches, pointers_of(arrays)
        try:
            yield made
        finally:
            self.recording.now = None

    def wait(self) -> None:
        """Synchronize the current stream."""
        self.cupy.cuda.get_current_stream().synchronize()

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

    def module(self, files: tuple[str, ...], constants: Mapping[str, int]) -> CudaModule:
        key = (files, *sorted(constants.items()))
        if key not in self._modules:
            self._modules[key] = CudaModule(self, source(files, constants), constants)
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


class CudaRecording:
    """Recorded launches of one call, to be replayed with other arrays.

    If two consecutive replays have the same arrays, as with PyTorch's caching allocator in a loop, the launches become
    a CUDA graph.
    """

    def __init__(self, cupy: Any) -> None:
        self.launches: list[Launch] = []
        self._cupy = cupy
        self._graphs: OrderedDict[tuple[int, ...], Any] = OrderedDict()
        self._last: tuple[int, ...] = ()

    def replay(self, arrays: tuple[Array, ...]) -> None:
        pointers = pointers_of(arrays)
        if self._cupy.cuda.get_current_stream().is_capturing():
            self._launch(pointers)
        elif pointers in self._graphs:
            self._graphs[pointers].launch()
        else:
            self._launch(pointers)
            if pointers == self._last:
                self._graphs[pointers] = self._capture(pointers)
                if len(self._graphs) > GRAPHS:
                    self._graphs.popitem(last=False)
            self._last = pointers

    def _capture(self, pointers: tuple[int, ...]) -> Any:
        with self._cupy.cuda.Stream(non_blocking=True) as aside:
            aside.begin_capture()
            self._launch(pointers)
            return aside.end_capture()

    def _launch(self, pointers: tuple[int, ...]) -> None:
        for kernel, grid, block, arguments, shared, places in self.launches:
            if places:
                changed = list(arguments)
                for place, number in places:
                    changed[place] = np.uintp(pointers[number])
                arguments = tuple(changed)
            kernel(grid, block, arguments, shared)


def pointers_of(arrays: tuple[Array, ...]) -> tuple[int, ...]:
    return tuple(int(address(array)) for array in arrays)  # type: ignore[call-overload]


class CudaModule:
    """Kernels compiled by NVRTC, which CuPy includes; no CUDA toolkit is needed."""

    def __init__(self, device: CudaDevice, text: str, constants: Mapping[str, int]) -> None:
        self._device = device
        # No fused multiply-add: the rotation must round as on the CPU. "a": instructions specific to Hopper.
        architecture = f"sm_{device.capability}{'a' if constants.get('WGMMA') else ''}"
        defined = [f"-D{name}={value}" for name, value in constants.items()]
        options = (f"-arch={architecture}", "-std=c++17", "-fmad=false", "-default-device", *defined)
        with device:
            self._module = device.cupy.cuda.function.Module()
            self._module.load(compiled(text, options))
        self._kernels: dict[str, Kernel] = {}
        self._allowed: dict[str, int] = {}

    def launch(self, name: str, grid: int | tuple[int, int], block: int, *arguments: object, shared: int = 0) -> None:
        x, y = grid if isinstance(grid, tuple) else (grid, 1)
        if not x or not y:
            return
        kernel, values = self.kernel(name, shared), tuple(map(address, arguments))
        kernel((x, y), (block,), values, shared)
        recording = getattr(self._device.recording, "now", None)
        if recording is not None:
            launches, pointers = recording
            slots = [(i, int(v)) for i, v in enumerate(values) if isinstance(v, np.uintp)]
            places = [(i, pointers.index(v)) for i, v in slots if v in pointers]
            launches.append((kernel, (x, y), (block,), values, shared, places))

    def kernel(self, name: str, shared: int) -> Kernel:
        """Return a kernel that may use this much dynamic shared memory."""
        if name not in self._kernels:
            self._kernels[name] = self._module.get_function(name)
        kernel = self._kernels[name]
        if shared > self._allowed.get(name, 32 * 1024):  # with static shared memory at most the default limit, 48 KiB
            self._device.cupy.cuda.driver.funcSetAttribute(kernel.ptr, MAX_DYNAMIC_SHARED, shared)
            self._allowed[name] = shared
        return kernel

    def resident_blocks(self, name: str, block: int, shared: int) -> int:
        """Return the number of blocks of a kernel that one multiprocessor runs concurrently."""
        pointer = self.kernel(name, shared).ptr
        blocks = self._device.cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(pointer, block, shared)
        return max(1, int(blocks))


def compiled(text: str, options: tuple[str, ...]) -> bytes:
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


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise GpuError(f"topsign.gpu needs CuPy, which cannot be imported ({error}); {INSTALL}") from error
    return cupy


def _check_device(cupy: Any, number: int) -> None:
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


@lru_cache(maxsize=16)
def cuda_device(number: int = 0) -> CudaDevice:
    """Return the device of this number, with its compiled kernels."""
    return CudaDevice(number)


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
