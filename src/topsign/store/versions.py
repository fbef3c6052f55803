"""Versions of a store: manifests, their listing, commit and cleaning."""

from __future__ import annotations

import base64
import json
import re
import secrets
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from .._checks import MAX_ID
from .._files import Record, parse_json, why
from .._lazy import lazy
from ..errors import ConflictError, StorageError
from .backends import FOLDERS, Backend, UnsettledError
from .segments import ORIGINAL_TYPES

FORMAT = 2

MAX_BYTES = 2**28
"""Maximum size of a manifest in bytes."""

MAX_VERSION = 2**63 - 1
"""Largest number of a version."""

N_ANCESTORS = 100
"""Number of ancestor tokens in a manifest, so that descent can be checked after cleaning."""

_PREFIX = re.compile(rb'\{"checksum":"([0-9a-f]{8})",')
_NAME = re.compile(r"[0-9a-f]{32}")
_OTHER_FOLDERS = {
    "removed": "removed",
    "metadata": "metadata",
    "originals": "segments",
    "regions": "segments",
}
_WRITTEN = re.compile(
    r"(versions|removed)/\.[0-9a-f]{32}|recipes/[0-9a-f]{32}\.json|(segments|removed|metadata)/[0-9a-f]{32}\.safetensors"
)
"""Names of files that an index writes, besides versions; files with other names are never deleted."""

_VERSION = re.compile(r"([0-9]{20})\.json")


@dataclass(frozen=True)
class FileRecord:
    """File of a version: name, size, and CRC-32 of its header.

    Small files are stored in the manifest itself, so that a small change writes one file instead of two.
    """

    folder: str
    name: str
    n_bytes: int
    crc32: int
    entries: int  # number of entries that the file holds or removes
    content: bytes | None = None  # of a file stored in the manifest

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}." + ("json" if self.folder == "recipes" else "safetensors")

    @lazy
    def json(self) -> Record:
        """Members of a manifest, which hold the content in base64."""
        record = {"file": self.name, "bytes": self.n_bytes, "crc32": f"{self.crc32:08x}", "entries": self.entries}
        return record if self.content is None else record | {"content": base64.b64encode(self.content).decode()}

    @classmethod
    def from_json(cls, record: Any, folder: str) -> FileRecord:
        text = record.get("content") if isinstance(record, dict) else None
        _check_members(record, {"file", "bytes", "crc32", "entries", *(["content"] if text is not None else [])})
        name, crc32 = record["file"], record["crc32"]
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"file must be 32 hexadecimal digits, got {name!r}")
        if not isinstance(crc32, str) or not re.fullmatch("[0-9a-f]{8}", crc32):
            raise ValueError(f"crc32 must be 8 hexadecimal digits, got {crc32!r}")
        if text is not None and not isinstance(text, str):
            raise ValueError("content must be a text")
        content = None if text is None else base64.b64decode(text, validate=True)
        return cls(folder, name, _size(record, "bytes"), int(crc32, 16), _size(record, "entries"), content)


@dataclass(frozen=True)
class SegmentRecord:
    """Segment of a version: its file, and the files of later removals and replacements."""

    file: FileRecord
    removed: FileRecord | None = None
    metadata: FileRecord | None = None
    originals: FileRecord | None = None
    regions: FileRecord | None = None

    @property
    def files(self) -> list[FileRecord]:
        return [self.file, *self.others.values()]

    @lazy
    def others(self) -> dict[str, FileRecord]:
        """Files of later removals and replacements, and of extra columns, by content."""
        return {name: one for name in _OTHER_FOLDERS if (one := getattr(self, name)) is not None}

    @lazy
    def json(self) -> Record:
        return self.file.json | {name: one.json for name, one in self.others.items()}

    @classmethod
    def from_json(cls, record: Any) -> SegmentRecord:
        if not isinstance(record, dict):
            raise ValueError("a segment must be an object")
        rest = dict(record)
        others = {
            name: FileRecord.from_json(rest.pop(name), _OTHER_FOLDERS[name]) for name in _OTHER_FOLDERS if name in rest
        }
        return cls(FileRecord.from_json(rest, "segments"), **others)


@dataclass(frozen=True)
class Manifest:
    """Immutable description of one version of an index."""

    recipe: FileRecord
    index: str = field(
        default_factory=lambda: secrets.token_hex(16)
    )  # the same in all versions; detects another index at the same path
    version: int = 1
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    ancestors: tuple[str, ...] = ()  # tokens of earlier versions, the latest first
    library: str = ""
    next_id: int = 0
    segments: tuple[SegmentRecord, ...] = ()
    sources: dict[str, Record] = field(default_factory=dict)
    originals: str | None = None  # type of kept originals
    tables: dict[str, FileRecord] = field(default_factory=dict)  # arrays of the whole index, by name

    def next(self, **changes: Any) -> Manifest:
        """Return the next version with these changes."""
        ancestors = (self.token, *self.ancestors)[:N_ANCESTORS]
        return replace(self, version=self.version + 1, token=secrets.token_hex(8), ancestors=ancestors, **changes)

    def descends_from(self, other: Manifest) -> bool | None:
        """Return whether this version equals or descends from another; None if that is too long ago to know."""
        if self.index != other.index:
            return False
        if other.token in (self.token, *self.ancestors):
            return True
        return None if other.version < self.version - len(self.ancestors) else False

    def repeats(self, other: Manifest) -> bool:
        """Return whether a version makes the same change as another, with other names of new files."""

        def unnamed(one: Manifest) -> tuple[Any, ...]:
            files = [replace(file, name="") for file in one.records]
            return replace(one, token="", segments=(), tables={}), [*one.tables], files

        return unnamed(self) == unnamed(other)

    @lazy
    def records(self) -> list[FileRecord]:
        """Records of all files of this version."""
        return [self.recipe, *self.tables.values(), *(file for segment in self.segments for file in segment.files)]

    @property
    def files(self) -> list[FileRecord]:
        """Records of all files of this version, except those stored in the manifest."""
        return [file for file in self.records if file.content is None]

    @property
    def n_inline(self) -> int:
        """Bytes of the files stored in the manifest."""
        return sum(file.n_bytes for file in self.records if file.content is not None)

    @lazy
    def content(self) -> bytes:
        """Serialise the manifest."""
        record = {
            "format": FORMAT,
            "library": self.library,
            "index": self.index,
            "version": self.version,
            "token": self.token,
            "ancestors": list(self.ancestors),
            "recipe": self.recipe.json,
            "next_id": self.next_id,
            "segments": [segment.json for segment in self.segments],
            "sources": self.sources,
        }
        record |= {} if self.originals is None else {"originals": self.originals}
        record |= {"tables": {name: file.json for name, file in self.tables.items()}} if self.tables else {}
        body = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()[1:]
        return b'{"checksum":"%08x",' % zlib.crc32(body) + body

    @classmethod
    def from_bytes(cls, content: bytes, path: str, version: int) -> Manifest:
        """Parse the manifest of a version; raise StorageError if it is damaged or foreign."""
        section = version_name(version)
        prefix = _PREFIX.match(content)
        if prefix is None:
            raise StorageError(path, section, "damaged: it does not begin with a checksum")
        body = memoryview(content)[prefix.end() :]
        stored, computed = int(prefix[1], 16), zlib.crc32(body)
        if stored != computed:
            raise StorageError(path, section, f"damaged: checksum {stored:08x} stored, {computed:08x} computed")
        try:
            record = parse_json(content)
            if (found := record.get("format")) != FORMAT:
                remedy = "encode the signals again" if found == 1 else "upgrade topsign"
                raise StorageError(path, section, f"format {found!r}; this library reads format {FORMAT}: {remedy}")
            manifest = cls._from_json(record, version)
            vars(manifest)["content"] = content
            return manifest
        except (ValueError, AttributeError) as error:
            raise StorageError(path, section, f"damaged: {error}") from None

    @classmethod
    def _from_json(cls, record: Record, version: int) -> Manifest:
        absent = {name for name in ("originals", "tables") if name not in record}
        _check_members(record, {"checksum", "format", *cls.__dataclass_fields__} - absent)
        originals, tables = record.get("originals"), record.get("tables", {})
        if originals not in (None, *ORIGINAL_TYPES) or not isinstance(tables, dict):
            raise ValueError(f"originals must be one of {', '.join(ORIGINAL_TYPES)}, and tables an object")
        if record["version"] != version or not 0 < version <= MAX_VERSION:
            raise ValueError(f"says that it is version {record['version']!r}")
        if not isinstance(record["segments"], list) or not isinstance(record["sources"], dict):
            raise ValueError("segments must be a list and sources an object")
        if not all(isinstance(source, dict) for source in record["sources"].values()):
            raise ValueError("sources must be objects")
        ancestors = record["ancestors"]
        if not isinstance(ancestors, list) or len(ancestors) > N_ANCESTORS:
            raise ValueError(f"ancestors must be a list of at most {N_ANCESTORS} tokens")
        for text in (record["index"], record["token"], record["library"], *ancestors):
            if not isinstance(text, str):
                raise ValueError(f"tokens and names must be texts, got {text!r}")
        made = cls(
            FileRecord.from_json(record["recipe"], "recipes"),
            record["index"],
            version,
            record["token"],
            tuple(ancestors),
            record["library"],
            _size(record, "next_id", MAX_ID + 1),
            tuple(map(SegmentRecord.from_json, record["segments"])),
            record["sources"],
            originals,
            {name: FileRecord.from_json(one, "segments") for name, one in tables.items()},
        )
        names = [file.path for file in made.records]
        if len(set(names)) != len(names):
            raise ValueError("a file is named twice")
        return made


def version_name(version: int) -> str:
    """Return the file name of a version's manifest."""
    return f"versions/{version:020d}.json"


def _check_members(record: Any, names: set[str]) -> None:
    if not isinstance(record, dict) or record.keys() != names:
        found = sorted(record) if isinstance(record, dict) else type(record).__name__
        raise ValueError(f"members {sorted(names)} expected, got {found}")


def _size(record: Record, name: str, most: int = 2**62) -> int:
    value = record[name]
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} must be an integer in [0, {most}], got {value!r}")
    return value


ATTEMPTS = 100
"""Attempts to list versions if the listing is empty or a listed manifest has been cleaned."""

CHECKS = 4
"""Attempts to list the versions of a shared store after a commit."""

ORPHAN_SECONDS = 86_400
"""Seconds by which orphans in a shared store must be older than the current version to be deleted.

Both times are the store's. A client writes the files of a change after the version on which it makes the change, so
that files older than the current version belong to a change that another client has superseded: it is made again, with
new files. The margin lets it end. Files of an upload on the current version are never deleted, however long it takes.

It is thirty times as long while a cluster encodes into a store, because its files belong to no version."""


PENDING = "topsign:encoding"
"""Name of the source in a manifest that reserves the files of a cluster's encoding job."""


class SupersededError(ConflictError):
    """Another client created this version first; the change can be repeated on that version."""


class UnknownOutcomeError(StorageError):
    """Error for a change with an unknown outcome."""


@dataclass(frozen=True)
class Listing:
    """Files in ``versions/``."""

    names: Sequence[str]
    numbers: list[int]  # of the versions, ascending


class Versions:
    """Versions of a store.

    A commit creates the next manifest exclusively. Its random token identifies this client's manifest, which resolves
    lost replies, and a later listing shows whether newer versions descend from it.
    """

    def __init__(self, backend: Backend, *, keep: int = 1) -> None:
        self.backend = backend
        self.keep = keep
        self._cleaned: Manifest | None = None
        self._collected: set[int] = set()  # kept versions whose files are known
        self._last_named: dict[str, int] = {}  # the last of these versions that names a file

    def listing(self) -> Listing:
        """Return the files in ``versions/``."""
        try:
            names = self.backend.list("versions")
        except (FileNotFoundError, NotADirectoryError):
            raise self._no_index() from None
        except OSError as error:
            raise StorageError(self.backend.path, "versions", f"cannot be listed: {error.strerror}") from None
        return Listing(names, sorted(int(match[1]) for match in map(_VERSION.fullmatch, names) if match))

    def newest(self, known: Manifest | None = None) -> Manifest:
        """Return the newest version, without parsing it again if it is already known."""
        for attempt in range(ATTEMPTS):
            numbers = self.listing().numbers
            if numbers:
                with suppress(FileNotFoundError):  # cleaned since the listing
                    return self.read(numbers[-1], before=numbers[-2:-1], known=known)
            time.sleep(0.001 * min(attempt, 20))
        raise self._no_index()

    def is_newest(self, known: Manifest) -> bool:
        """Return whether this is likely the newest version; the listing after a commit on it makes sure."""
        with suppress(OSError):
            if self.backend.read(version_name(known.version), MAX_BYTES) == known.content:
                try:
                    self.backend.read(version_name(known.version + 1), MAX_BYTES)
                except FileNotFoundError:
                    return True
        return False

    def read(self, number: int, before: list[int] | None = None, known: Manifest | None = None) -> Manifest:
        """Read a version; raise FileNotFoundError if it does not exist."""
        try:
            content = self.backend.read(version_name(number), MAX_BYTES)
            if known is not None and known.version == number and known.content == content:
                return known
            return Manifest.from_bytes(content, self.backend.path, number)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageError(self.backend.path, version_name(number), f"cannot be read: {error.strerror}") from None
        except StorageError as error:
            if before is None or not error.problem.startswith("damaged"):
                raise
            remedy = "restore the folder from a copy"
            if before:
                remedy = f"open_index(path, version={before[0]}) opens the version before it"
            raise StorageError(error.path, error.section, f"{error.problem}; {remedy}") from None

    def commit(self, manifest: Manifest) -> Listing | None:
        """Create a version whose files are durable; raise ConflictError without effect if another client was first.

        Return the versions after the commit, or None if they cannot be listed. In a shared store, the outcome is then
        unknown, because others may have used this number before and deleted it.
        """
        name = version_name(manifest.version)
        if manifest.version > MAX_VERSION or len(manifest.content) > MAX_BYTES:
            limits = f"readers accept at most {MAX_VERSION} versions with manifests of {MAX_BYTES} bytes"
            raise StorageError(self.backend.path, name, f"nothing was changed: {limits}; save the index elsewhere")
        try:
            self.backend.publish(name, manifest.content)
        except OSError as error:
            is_stored = self._outcome(manifest, error)
            if is_stored is None:
                raise self._unsettled(manifest, why(error) or repr(error)) from None
            if not is_stored and isinstance(error, FileExistsError | UnsettledError):
                raise self._conflict(manifest) from None
            if not is_stored:
                raise
            self._settle(manifest)
        descends: bool | None = True
        for attempt in range(CHECKS if self.backend.is_shared else 1):
            try:
                listing = self.listing()
                if listing.numbers[-1] != manifest.version:  # then newer ones descend from it, or it reused a number
                    newest = self.newest()
                    descends = newest.descends_from(manifest)
                break
            except (OSError, StorageError) as error:
                problem = str(error)
                time.sleep(0.05 * 2**attempt if self.backend.is_shared else 0)
        else:
            if self.backend.is_shared:
                raise self._unsettled(manifest, problem)
            return None  # the change is stored: nothing may raise from here on
        if descends is None:
            raise self.overtaken(manifest, newest)
        if not descends:
            self.backend.delete(name)
            raise self._conflict(manifest)
        return listing

    def _outcome(self, manifest: Manifest, error: OSError) -> bool | None:
        """Return whether a version is stored although its creation reported an error; None if that is unknown."""
        if isinstance(error, PermissionError):
            return False
        if isinstance(error, UnsettledError) and not self.backend.is_shared:
            return None  # it is visible but may not survive a power loss
        try:
            return self.backend.read(version_name(manifest.version), MAX_BYTES) == manifest.content
        except FileNotFoundError:
            if not isinstance(error, FileExistsError | UnsettledError):
                return False
        except OSError:
            return None
        try:
            newest = self.newest()
        except StorageError:
            return None
        may_appear = isinstance(error, UnsettledError) and newest.version < manifest.version
        return None if may_appear else newest.descends_from(manifest)  # it may have been cleaned

    def _settle(self, manifest: Manifest) -> None:
        """Finish a commit whose reply was lost; undo it if it cannot be made durable."""
        try:
            self.backend.sync(["versions"])
        except OSError as error:
            if not self.backend.delete(version_name(manifest.version)):
                raise self._unsettled(manifest, why(error) or repr(error)) from None
            raise

    def clean(self, current: Manifest, listing: Listing | None = None, *, keep: int | None = None) -> bool:
        """Delete old versions and files that no kept version names; return whether all are gone.

        Never raises OSError; the next change retries failed deletions. Nothing is deleted if a kept version cannot be
        read, because its files are unknown. Files that an index does not write, by their names, are kept.
        """
        try:
            listing, dropped = listing or self.listing(), set[str]()
            numbers = listing.numbers
            old, kept = numbers[: -(keep or self.keep)], numbers[-(keep or self.keep) :]
            if self._cleaned is None or not current.descends_from(self._cleaned):
                self._collected, self._last_named = set(), {}
            self._cleaned, needed = current, {current.version, *kept}
            # Each version is read once. Successive ones name a file, so its last one tells until when it is needed.
            for number in needed - self._collected:
                for file in (current if number == current.version else self.read(number)).records:
                    self._last_named[file.path] = max(number, self._last_named.get(file.path, 0))
                self._collected.add(number)
            self._collected &= needed
            oldest = min(needed)
            self._last_named = {path: last for path, last in self._last_named.items() if last >= oldest}
            is_pending = PENDING in current.sources
            for number in old if self.backend.is_shared or is_pending else ():
                with suppress(OSError, StorageError):  # its files become orphans
                    dropped |= {file.path for file in self.read(number).records}
            gone = [self.backend.delete(version_name(number)) for number in old]
            names = [f"versions/{name}" for name in listing.names]
            for folder in FOLDERS[1:]:
                with suppress(FileNotFoundError):  # copies by way of a bucket or git lack empty folders
                    names += [f"{folder}/{name}" for name in self.backend.list(folder)]
            orphans = set(filter(_WRITTEN.fullmatch, names)) - self._last_named.keys()
            seconds = ORPHAN_SECONDS * (30 if is_pending else self.backend.is_shared)
            if seconds and orphans - dropped:
                then = self.backend.modified(version_name(current.version)) - seconds
                orphans -= {path for path in orphans - dropped if self.backend.modified(path) > then}
            gone += map(self.backend.delete, orphans)
            return all(gone)
        except (OSError, StorageError):
            return False

    def _conflict(self, manifest: Manifest) -> SupersededError:
        problem = f"another client committed version {manifest.version} first; nothing was changed, try again"
        return SupersededError(self.backend.path, version_name(manifest.version), problem)

    def overtaken(self, manifest: Manifest, newest: Manifest) -> UnknownOutcomeError:
        """Return the error for a change so long ago that descent from it is unknown."""
        return self._unknown(manifest, f"version {newest.version} was created meanwhile; refresh the index and check")

    def _unsettled(self, manifest: Manifest, reason: str) -> UnknownOutcomeError:
        remedy = "repeat it with this index, which does not store it twice, or refresh the index and check"
        return self._unknown(manifest, f"{reason}; {remedy}")

    def _unknown(self, manifest: Manifest, reason: str) -> UnknownOutcomeError:
        problem = f"it is unknown whether the change was stored: {reason}"
        return UnknownOutcomeError(self.backend.path, version_name(manifest.version), problem)

    def _no_index(self) -> StorageError:
        return StorageError(self.backend.path, "versions", "there are none; this folder is not a topsign index")
