"""Read photographs and extract their residuals, on all threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from .. import kernels
from .images import Photograph, PhotographError, read_photograph
from .residual import Residual, extract_residual
from .scene import scene_signature

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Reading:
    """A photograph with its residual and scene signature, both in one orientation."""

    photograph: Photograph
    residual: Residual
    scene: bytes | None


def read_residual(path: str | os.PathLike[str], *, size: int) -> Reading:
    """Return a photograph with its residual; PhotographError names the file if it cannot be used."""
    return reading_of(read_photograph(path, size=size))


def reading_of(photograph: Photograph, orientation: str = "as stored") -> Reading:
    """Return a photograph with its residual in an orientation; PhotographError if too few pixels are usable."""
    pixels = photograph.crop(orientation)
    try:
        return Reading(photograph, extract_residual(pixels), scene_signature(pixels))
    except ValueError as error:
        raise PhotographError(photograph.path, str(error)) from None


def read_residuals(
    paths: Sequence[str | os.PathLike[str]],
    *,
    size: int,
    progress: Progress | None = None,
) -> Iterator[Reading | PhotographError]:
    """Yield each file's photograph and residual in order, or the error that names the file.

    At most twice as many photographs as threads are held in memory.
    """

    def attempt(path: str | os.PathLike[str]) -> Reading | PhotographError:
        try:
            return read_residual(path, size=size)
        except PhotographError as error:
            return error

    threads = kernels.n_threads()
    with ThreadPoolExecutor(threads) as pool:
        waiting = [pool.submit(attempt, path) for path in paths[: 2 * threads]]
        for done in range(len(paths)):
            read = waiting.pop(0).result()
            if done + 2 * threads < len(paths):
                waiting.append(pool.submit(attempt, paths[done + 2 * threads]))
            if progress is not None:
                progress(done + 1, len(paths))
            yield read
