"""CameraDatabase: fingerprints of cameras in an index, with records of their photographs."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays import Float32, Float64, Int64
from .._checks import check_count
from .._files import is_link
from ..errors import CalibrationWarning, StorageError
from ..index import Index, open_index, store_of
from ..store.backends import hold_lock
from ..store.segments import Snapshot
from ..store.versions import UnknownOutcomeError
from .calibration import CameraCalibration
from .fingerprint import FingerprintSums, read_sums, write_sums
from .photographs import CONDITIONS, SCENE_BITS, check_size, same_scene

SETTINGS, CALIBRATION = "cameras", "cameras calibration"
"""Names of the records stored in the index."""

FORMAT = 1
DEFAULT_SIZE = 1024
ENROLL_WHOLE = "enroll all of its photographs again with keep_fingerprints (--keep-fingerprints)"
SUMS_NAME = re.compile(r"[0-9a-f]{64}\.safetensors")
PIXELS_PER_BIT = 64
"""Pixels of a crop per projection kept by default: 16,384 projections for 1024 x 1024 pixels, 18,432 bytes.

At this size, 0.14 bits per pixel, adaptive codes keep 11.8% of the energy of a fingerprint and grouped codes of equal
bytes 11.2%; from 0.25 bits per pixel on, grouped codes keep more.
"""


@dataclass(frozen=True)
class Camera:
    """One camera of a database."""

    name: str  #: name of the camera
    frame: tuple[int, int]  #: width and height of its photographs
    photographs: list[dict[str, Any]]  #: file, sha256, scene, bytes, width, height, model, date; some may be missing
    sums: str | None  #: name of the file of sums; None if they are not stored
    whole: str | None  #: name of the file of the fingerprint of the whole frame; None if it is not stored
    match_scores: list[float]  #: scores of enrolled photographs with the fingerprint of the others
    impostor_scores: dict[str, list[float]]  #: scores of enrolled photographs with other cameras, by their condition

    @property
    def models(self) -> set[str]:
        """Models in the EXIF fields of the enrolled photographs."""
        return {str(one["model"]) for one in self.photographs if "model" in one}

    def photograph_of_scene(self, scene: bytes | None) -> dict[str, Any] | None:
        """Return an enrolled photograph that shows a ``scene``, by its signature; None if there is none."""
        known = (one for one in self.photographs if "scene" in one)
        return next((one for one in known if same_scene(bytes.fromhex(one["scene"]), scene)), None)

    def to_json(self) -> dict[str, Any]:
        """Return the metadata of the camera's entry."""
        record = asdict(self) | {"frame": list(self.frame)}
        del record["name"]
        return record

    @classmethod
    def from_json(cls, name: str, record: Any, path: str) -> Camera:
        """Return the camera ``name`` of an entry's metadata, ``record``; StorageError of ``path`` if damaged."""
        try:
            width, height = record["frame"]
            files, photographs = [record[name] for name in ("sums", "whole")], record["photographs"]
            matches = [float(one) for one in record["match_scores"]]
            impostors = {
                condition: [float(one) for one in scores] for condition, scores in record["impostor_scores"].items()
            }
            known = isinstance(photographs, list) and all(isinstance(one, dict) for one in photographs)
            if known:
                scenes = [bytes.fromhex(one["scene"]) for one in photographs if "scene" in one]
                known = all(len(scene) == SCENE_BITS // 8 for scene in scenes)
            named = all(one is None or (isinstance(one, str) and SUMS_NAME.fullmatch(one)) for one in files)
            if not known or not named or not set(impostors) <= set(CONDITIONS):
                raise ValueError("photographs, scores or names of files are malformed")
            return cls(name, (int(width), int(height)), photographs, files[0], files[1], matches, impostors)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(path, f"metadata of {name!r}", f"do not describe a camera: {error}") from None


class CameraDatabase:
    """Database of camera fingerprints: a durable :class:`topsign.Index`, and a folder of sums for updates.

    The index has one entry per camera, whose id is the camera's name. It also stores the fingerprints in float16, for
    the peak to correlation energy. Every change is a transaction of the index.

    Parameters
    ----------
    path : path
        Folder of the index. The first enrolment creates it if it does not exist. Sums are in ``path + ".sums"``.
    size : int, optional
        Side of the square crop at the centre of photographs: a multiple of 16, 1024 by default. If the database exists,
        ``size`` and ``n_bits`` can be omitted; if given, they must agree with it.
    n_bits : int, optional
        Number of projections kept per fingerprint: one per 64 pixels by default.
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
            raise StorageError(self.path, "settings", "this index is not a camera database")
        try:
            known_size, known_bits = check_size(settings["size"]), check_count(settings["n_bits"], "n_bits")
            if settings["format"] != FORMAT or known_size**2 != index.n_features:
                raise ValueError(f"format {settings['format']!r}, size {known_size}, {index.n_features} features")
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(self.path, "settings", f"cannot be read: {error}") from None
        for name, given, known in (("size", size, known_size), ("n_bits", n_bits, known_bits)):
            if given is not None and given != known:
                raise ValueError(
                    f"{name} of {self.path} is {known}, got {name}={given}; omit {name}, or create another database"
                )
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
        snapshot = store_of(self.index).snapshot  # Index.get would read the fingerprints as well, 2 MiB each
        return self._described(snapshot, snapshot.locate(snapshot.ids))

    def camera(self, name: str) -> Camera:
        """Return a camera by its ``name``; ValueError if the database does not have it."""
        self._check_known(name)
        snapshot = store_of(self.index).snapshot
        (found,) = self._described(snapshot, snapshot.find_text_ids([name.encode()]))
        return found

    def fingerprint(self, name: str) -> Float32:
        """Return the stored fingerprint of the camera ``name``, (size, size)."""
        self._check_known(name)
        signals = self.index.get([name]).signals
        assert signals is not None
        return np.asarray(signals[0], np.float32).reshape(self.size, self.size)

    def sums(self, camera: Camera) -> FingerprintSums:
        """Return the sums of a ``camera``; ValueError if they are not stored."""
        if camera.sums is None:
            raise ValueError(
                f"the sums of {camera.name!r} are not stored, so further photographs cannot be added; remove the "
                "camera and enroll all of its photographs again"
            )
        return read_sums(self.sums_folder / camera.sums, shape=(self.size, self.size))

    def whole(self, camera: Camera) -> FingerprintSums:
        """Return the sums over the whole frame of a ``camera``, as precisely as they are stored; ValueError if not."""
        if camera.whole is None:
            raise ValueError(
                f"the fingerprint of the whole frame of {camera.name!r} is not stored; remove the camera and "
                f"{ENROLL_WHOLE}"
            )
        return read_sums(self.sums_folder / camera.whole, shape=camera.frame[::-1], compact=True)

    def put(
        self, camera: Camera, fingerprint: Float32, sums: FingerprintSums | None, whole: FingerprintSums | None
    ) -> None:
        """Store a new or known ``camera`` with its ``fingerprint``, ``sums`` and ``whole`` sums in one transaction;
        call it while holding :meth:`writing`.
        """
        known = self.camera(camera.name) if camera.name in self else None
        before = set() if known is None else {known.sums, known.whole}
        camera = replace(
            camera,
            sums=None if sums is None else write_sums(self.sums_folder, sums, camera=camera.name),
            whole=None if whole is None else write_sums(self.sums_folder, whole, camera=camera.name, compact=True),
        )
        files = {camera.sums, camera.whole}
        signal, notes = fingerprint.reshape(1, -1), [camera.to_json()]
        try:
            if self._index is None:
                made = Index(
                    self.size**2,
                    family="adaptive",
                    n_bits=self.n_bits,
                    random_state=0,
                    originals="float16",
                    path=self.path,
                )
                settings = {"format": FORMAT, "size": self.size, "n_bits": self.n_bits}
                made.add(signal, ids=[camera.name], metadata=notes, source=(SETTINGS, settings))
                self._index = made
            else:
                self._index.upsert(signal, ids=[camera.name], metadata=notes)
        except UnknownOutcomeError:  # the entry may be stored; the same holds for an interrupt
            raise
        except Exception:
            self._delete_sums(files - before)
            raise
        self._delete_sums(before - files)

    def remove(self, name: str, *, erase: bool = False) -> None:
        """Remove the camera ``name`` and its sums; with ``erase``, delete every file that contains its entry."""
        with self.writing():
            known = self.camera(name)
            self.index.remove([name], erase=erase)
            self._delete_sums({known.sums, known.whole})

    def verify(self) -> list[str]:
        """Check all data; StorageError if any are damaged. Return the names of files of sums that no camera uses."""
        self.index.refresh()
        self.index.verify()
        cameras = self.cameras()
        for one in cameras:
            for name, read in ((one.sums, self.sums), (one.whole, self.whole)):
                if name is not None and read(one).n_photographs != len(one.photographs):
                    raise StorageError(
                        self.sums_folder / name,
                        "sums",
                        f"their number of photographs differs from that of {one.name!r}",
                    )
        _ = self.calibration
        used = {name for one in cameras for name in (one.sums, one.whole)}
        present = self.sums_folder.glob("*.safetensors") if self.sums_folder.is_dir() else ()
        return sorted(file.name for file in present if file.name not in used)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock of the database, with changes of other processes loaded."""
        lock = self.sums_folder / "lock"
        if linked := next(filter(is_link, (self.sums_folder, lock)), None):
            problem = f"{linked.name} is a link, and nothing is written or deleted through links"
            raise StorageError(self.path, "sums", problem)
        self.sums_folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(str(lock), None, folder=self.path):
            if self._index is not None:
                self._index.refresh()
            elif os.path.lexists(self.path):
                self._open(self.size, self.n_bits)
            yield

    # Comparison

    @property
    def calibration(self) -> CameraCalibration | None:
        """Calibration stored by :func:`topsign.cameras.calibrate`; None before."""
        record = self.index.sources.get(CALIBRATION)
        return None if record is None else CameraCalibration.from_json(record, self.path)

    def keep_calibration(self, learned: CameraCalibration) -> None:
        """Store a ``learned`` calibration with the index."""
        record = learned.to_json()
        store_of(self.index).apply(lambda change: change.sources.update({CALIBRATION: record}))

    # Helpers

    def _described(self, snapshot: Snapshot, rows: Int64) -> list[Camera]:
        named = zip(snapshot.text_ids(rows), snapshot.notes(rows), strict=True)
        return [Camera.from_json(name, note, self.path) for name, note in named]

    def _check_known(self, name: str) -> None:
        if name not in self:
            known = ", ".join(map(repr, self.index.ids[:5].tolist())) if len(self) else "none"
            raise ValueError(f"{self.path} has no camera {name!r}; it has {len(self)}: {known}")

    def _delete_sums(self, names: set[str | None]) -> None:
        """Delete files of sums that no entry uses; if that fails, ``verify`` lists them."""
        for name in names - {None}:
            with suppress(OSError):
                (self.sums_folder / str(name)).unlink()


def code_scores(index: Index, query: Float32, names: list[Any]) -> Float64:
    """Return the scores of a signal W I with the codes of some entries, (n_names,).

    The index warns that its p-values assume isotropic signals. They are not used here, so the warning is suppressed.
    """
    if not names:
        return np.empty(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        found = index.search(query[np.newaxis], k=len(names), among=names)
    scores = dict(zip(found.ids[0].tolist(), found.scores[0].tolist(), strict=True))
    return np.array([scores[name] for name in names])
