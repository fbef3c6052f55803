"""CameraDatabase: fingerprints of cameras in an index, with what is known of their photographs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays import Float32, Float64, Int64
from .._checks import check_count
from ..errors import CalibrationWarning, StorageError
from ..index import AdaptiveIndex, Index, open_index
from ..store import Snapshot
from ..store.lock import hold_lock
from .calibration import CameraCalibration
from .fingerprint import FingerprintSums, read_sums, write_sums
from .images import check_size

SETTINGS, CALIBRATION = "cameras", "cameras calibration"
"""Names of the records that the index keeps."""

FORMAT = 1
DEFAULT_SIZE = 1024
PIXELS_PER_BIT = 64
"""Pixels of a crop for each projection kept: 16,384 projections for 1024 x 1024 pixels."""


@dataclass(frozen=True)
class Camera:
    """One camera of a database."""

    name: str
    frame: tuple[int, int]  # width and height of its photographs
    photographs: list[dict[str, Any]]  # hash, bytes, width, height, model and date of each, as far as they are kept
    sums: str | None  # name of the file of sums; None if they are not kept
    match_scores: list[float]  # of enrolled photographs with the fingerprint of the others
    impostor_scores: list[float]  # of enrolled photographs with other cameras

    def to_json(self) -> dict[str, Any]:
        """Return the metadata of the camera's entry."""
        return {
            "frame": list(self.frame),
            "photographs": self.photographs,
            "sums": self.sums,
            "match_scores": self.match_scores,
            "impostor_scores": self.impostor_scores,
        }

    @classmethod
    def from_json(cls, name: str, record: Any, path: str) -> Camera:
        """Return the camera of an entry; StorageError if its metadata are not those of a camera."""
        try:
            width, height = record["frame"]
            sums, photographs = record["sums"], record["photographs"]
            scores = [[float(one) for one in record[kind]] for kind in ("match_scores", "impostor_scores")]
            known = isinstance(photographs, list) and all(isinstance(one, dict) for one in photographs)
            if not known or not (sums is None or (isinstance(sums, str) and Path(sums).name == sums)):
                raise ValueError("photographs and sums are malformed")
            return cls(name, (int(width), int(height)), photographs, sums, scores[0], scores[1])
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(path, f"metadata of {name!r}", f"not those of a camera: {error}") from None


class CameraDatabase:
    """Fingerprints of cameras: a durable :class:`topsign.AdaptiveIndex`, and sums for later updates in a folder beside.

    The index has one entry per camera, whose id is the camera's name. It keeps fingerprints in float16 as well, for the
    peak to correlation energy. All changes are those of the index: complete, or not made at all.

    Parameters
    ----------
    path : path
        Folder of the index. It is created by the first enrolment if it does not exist. Sums are in ``path + ".sums"``.
    size : int, optional
        Side of the square crop from the centre of photographs: a multiple of 16, 1024 by default. If the database
        exists, ``size`` and ``n_bits`` must agree with it, and need not be given.
    n_bits : int, optional
        Projections kept of each fingerprint: one for 64 pixels by default.
    """

    def __init__(self, path: str | os.PathLike[str], *, size: int | None = None, n_bits: int | None = None) -> None:
        self.path = os.fspath(path)
        self.size = DEFAULT_SIZE if size is None else check_size(size)
        self.n_bits = max(1, self.size**2 // PIXELS_PER_BIT) if n_bits is None else check_count(n_bits, "n_bits")
        self._index: Index | None = None
        if os.path.lexists(self.path):
            self._open(size, n_bits)

    def _open(self, size: int | None, n_bits: int | None) -> None:
        index = open_index(self.path)
        settings = index.sources.get(SETTINGS)
        if settings is None:
            raise StorageError(self.path, "settings", "not a database of cameras, but another index")
        try:
            known_size, known_bits = check_size(settings["size"]), check_count(settings["n_bits"], "n_bits")
            if settings["format"] != FORMAT or known_size**2 != index.n_features:
                raise ValueError(f"format {settings['format']!r}, size {known_size}, {index.n_features} features")
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(self.path, "settings", f"cannot be read: {error}") from None
        for name, given, known in (("size", size, known_size), ("n_bits", n_bits, known_bits)):
            if given is not None and given != known:
                raise ValueError(f"{name} of {self.path} is {known}, got {name}={given}; leave it out, or make another")
        self.size, self.n_bits, self._index = known_size, known_bits, index

    @property
    def index(self) -> Index:
        """The index of fingerprints; FileNotFoundError before the first enrolment."""
        if self._index is None:
            raise FileNotFoundError(f"{self.path} does not exist; enroll a camera first")
        return self._index

    @property
    def sums_folder(self) -> Path:
        """Folder of the sums from which fingerprints are updated."""
        return Path(f"{self.path}.sums")

    def __len__(self) -> int:
        """Return the number of cameras."""
        return 0 if self._index is None else len(self._index)

    def __contains__(self, camera: object) -> bool:
        return self._index is not None and camera in self._index

    # Cameras

    def cameras(self) -> list[Camera]:
        """Return all cameras in the order of their enrolment."""
        if not len(self):
            return []
        snapshot = self.index.store.snapshot  # Index.get would read the fingerprints as well, 2 MiB each
        return self._described(snapshot, snapshot.locate(snapshot.ids))

    def camera(self, name: str) -> Camera:
        """Return a camera by its name; ValueError names those that are known."""
        self._check_known(name)
        snapshot = self.index.store.snapshot
        (found,) = self._described(snapshot, snapshot.find_text_ids([name.encode()]))
        return found

    def fingerprint(self, name: str) -> Float32:
        """Return the fingerprint that is kept of a camera, (size, size)."""
        self._check_known(name)
        signals = self.index.get([name]).signals
        assert signals is not None
        return np.asarray(signals[0], np.float32).reshape(self.size, self.size)

    def sums(self, camera: Camera) -> FingerprintSums:
        """Return the sums of a camera; ValueError if they are not kept."""
        if camera.sums is None:
            raise ValueError(
                f"the sums of {camera.name!r} are not kept, so further photographs cannot be added; remove the camera "
                "and enroll all of its photographs again"
            )
        return read_sums(self.sums_folder / camera.sums, size=self.size)

    def put(self, camera: Camera, fingerprint: Float32, sums: FingerprintSums | None) -> None:
        """Store a camera, new or known, in one transaction; hold :meth:`writing` around reading and storing."""
        before = self.camera(camera.name).sums if camera.name in self else None
        name = None if sums is None else self._write_sums(sums, camera.name)
        camera = Camera(**(camera.__dict__ | {"sums": name}))
        signal, notes = fingerprint.reshape(1, -1), [camera.to_json()]
        try:
            if self._index is None:
                made = AdaptiveIndex(
                    n_features=self.size**2, n_bits=self.n_bits, random_state=0, originals="float16", path=self.path
                )
                settings = {"format": FORMAT, "size": self.size, "n_bits": self.n_bits}
                made.add(signal, ids=[camera.name], metadata=notes, source=(SETTINGS, settings))
                self._index = made
            else:
                self._index.upsert(signal, ids=[camera.name], metadata=notes)
        except BaseException:
            if name != before:
                self._delete_sums(name)
            raise
        if before != name:
            self._delete_sums(before)

    def remove(self, name: str, *, erase: bool = False) -> None:
        """Remove a camera and its sums; with ``erase`` delete every file of the index that holds its entry."""
        with self.writing():
            known = self.camera(name)
            (self.index.erase if erase else self.index.remove)([name])
            self._delete_sums(known.sums)

    def verify(self) -> list[str]:
        """Read everything again; StorageError names damage. Return the names of files of sums that no camera uses."""
        self.index.refresh()
        self.index.verify()
        cameras = self.cameras()
        for one in cameras:
            if one.sums is not None and self.sums(one).n_photographs != len(one.photographs):
                raise StorageError(self.sums_folder / one.sums, "sums", f"not those of the photographs of {one.name!r}")
        _ = self.calibration
        used = {one.sums for one in cameras}
        present = self.sums_folder.glob("*.safetensors") if self.sums_folder.is_dir() else ()
        return sorted(file.name for file in present if file.name not in used)

    @contextmanager
    def writing(self, timeout: float | None = None) -> Iterator[None]:
        """Hold the lock of the database, and see what other processes have written."""
        self.sums_folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(str(self.sums_folder / "lock"), timeout, folder=self.path):
            if self._index is not None:
                self._index.refresh()
            elif os.path.lexists(self.path):
                self._open(self.size, self.n_bits)
            yield

    # Comparison

    @property
    def calibration(self) -> CameraCalibration | None:
        """What :func:`topsign.cameras.calibrate` learned; None before."""
        record = self.index.sources.get(CALIBRATION)
        return None if record is None else CameraCalibration.from_json(record, self.path)

    def keep_calibration(self, learned: CameraCalibration) -> None:
        """Store a calibration with the index."""
        record = learned.to_json()
        self.index.store.apply(lambda change: change.sources.update({CALIBRATION: record}))

    def scores(self, queries: Float32, cameras: list[str], *, n_threads: int | None = None) -> Float64:
        """Return the scores of queries W I with the codes of cameras, (n_queries, n_cameras)."""
        return code_scores(self.index, queries, cameras, n_threads=n_threads)

    # Helpers

    def _described(self, snapshot: Snapshot, rows: Int64) -> list[Camera]:
        named = zip(snapshot.text_ids(rows), snapshot.notes(rows), strict=True)
        return [Camera.from_json(name, note, self.path) for name, note in named]

    def _check_known(self, name: str) -> None:
        if name not in self:
            known = ", ".join(map(repr, self.index.ids[:5].tolist())) if len(self) else "none"
            raise ValueError(f"{self.path} has no camera {name!r}; it has {len(self)}: {known}")

    def _write_sums(self, sums: FingerprintSums, camera: str) -> str:
        try:
            return write_sums(self.sums_folder, sums, camera=camera)
        except OSError as error:
            raise StorageError(self.sums_folder, "sums", f"cannot be written: {error}") from None

    def _delete_sums(self, name: str | None) -> None:
        """Delete a file of sums that no entry names; one that stays behind does no harm, ``verify`` lists it."""
        if name is not None:
            with suppress(OSError):
                (self.sums_folder / name).unlink()


def code_scores(index: Index, queries: Float32, names: list[Any], *, n_threads: int | None = None) -> Float64:
    """Return scores of queries with the codes of some entries, (n_queries, n_names).

    The index's own p-values are those of isotropic signals, which photographs are not; its warning is not passed on.
    """
    if not names:
        return np.empty((len(queries), 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        found = index.search(queries, k=len(names), among=names, n_threads=n_threads)
    column = {name: at for at, name in enumerate(names)}
    scores = np.empty((len(queries), len(names)))
    for row in range(len(queries)):
        for name, score in zip(found.ids[row].tolist(), found.scores[row].tolist(), strict=True):
            scores[row, column[name]] = score
    return scores
