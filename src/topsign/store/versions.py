"""Versions of a store: listing, commit and cleaning.

A commit creates the next manifest exclusively. Its random token identifies this client's manifest, which resolves lost
replies, and a later listing shows whether newer versions descend from it.
"""

from __future__ import annotations

import time
from contextlib import suppress

from .._system import why
from ..errors import ConflictError, StorageError
from .backend import FOLDERS, Backend, UnsettledError
from .manifest import MAX_BYTES, MAX_VERSION, Manifest, is_unique, parse_version, version_name

ATTEMPTS = 100
"""Attempts to list versions if the listing is empty or a listed manifest has been cleaned."""

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


class Versions:
    """Manifests of a store."""

    def __init__(self, backend: Backend, *, keep: int = 1) -> None:
        self.backend = backend
        self.keep = keep
        self._cleaned: Manifest | None = None
        self._collected: set[int] = set()  # kept versions whose files are known
        self._last_named: dict[str, int] = {}  # the last of these versions that names a file

    def numbers(self) -> list[int]:
        """Return the versions in the store, ascending."""
        try:
            names = self.backend.list("versions")
        except (FileNotFoundError, NotADirectoryError):
            raise self._no_index() from None
        except OSError as error:
            raise StorageError(self.backend.path, "versions", f"cannot be listed: {error.strerror}") from None
        return sorted(number for number in map(parse_version, names) if number is not None)

    def newest(self, known: Manifest | None = None) -> Manifest:
        """Return the newest version, without parsing it again if it is already known."""
        for attempt in range(ATTEMPTS):
            numbers = self.numbers()
            if numbers:
                with suppress(FileNotFoundError):  # cleaned since the listing
                    return self.read(numbers[-1], before=numbers[-2:-1], known=known)
            time.sleep(0.001 * min(attempt, 20))
        raise self._no_index()

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

    def commit(self, manifest: Manifest) -> None:
        """Create a version whose files are durable; raise ConflictError without effect if another client was first."""
        name = version_name(manifest.version)
        if manifest.version > MAX_VERSION or len(manifest.content) > MAX_BYTES:
            limits = f"readers accept at most {MAX_VERSION} versions with manifests of {MAX_BYTES} bytes"
            raise StorageError(self.backend.path, name, f"nothing was changed: {limits}; save the index elsewhere")
        try:
            self.backend.publish(name, manifest.content)
        except OSError as error:
            is_stored = self._outcome(manifest, error)
            if is_stored is None:
                raise self._unsettled(manifest, error) from None
            if not is_stored and isinstance(error, FileExistsError | UnsettledError):
                raise self._conflict(manifest) from None
            if not is_stored:
                raise
            self._settle(manifest)
        lost = False
        try:
            lost = self._is_lost(manifest)
        except UnknownOutcomeError:
            raise
        except (OSError, StorageError):
            pass  # the change is stored: nothing may raise from here on
        if lost:
            self.backend.delete(name)
            raise self._conflict(manifest)

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
                raise self._unsettled(manifest, error) from None
            raise

    def _is_lost(self, manifest: Manifest) -> bool:
        """Return whether newer versions do not descend from this one, because it reused a cleaned number."""
        if self.numbers()[-1] == manifest.version:
            return False
        newest = self.newest()
        descends = newest.descends_from(manifest)
        if descends is None:
            raise self.overtaken(manifest, newest)
        return not descends

    def clean(self, current: Manifest, *, keep: int | None = None) -> bool:
        """Delete old versions and files that no kept version names; return whether all are gone.

        Never raises OSError; the next change retries failed deletions. Nothing is deleted if a kept version cannot be
        read, because its files are unknown. Files that an index does not write, by their names, are kept.
        """
        try:
            numbers, dropped = self.numbers(), set[str]()
            old, kept = numbers[: -(keep or self.keep)], numbers[-(keep or self.keep) :]
            self._name_files(current, kept)
            is_pending = PENDING in current.sources
            for number in old if self.backend.is_shared or is_pending else ():
                with suppress(OSError, StorageError):  # its files become orphans
                    dropped |= {file.path for file in self.read(number).files}
            gone = [self.backend.delete(version_name(number)) for number in old]
            orphans = {
                f"{folder}/{name}" for folder in FOLDERS for name in self.backend.list(folder) if is_unique(name)
            }
            orphans -= self._last_named.keys()
            seconds = ORPHAN_SECONDS * (30 if is_pending else self.backend.is_shared)
            if seconds and orphans - dropped:
                then = self.backend.modified(version_name(current.version)) - seconds
                orphans -= {path for path in orphans - dropped if self.backend.modified(path) > then}
            gone += map(self.backend.delete, orphans)
            return all(gone)
        except (OSError, StorageError):
            return False

    def _name_files(self, current: Manifest, kept: list[int]) -> None:
        """Collect the files of kept versions. Each is read once, so that a change does not read all of them.

        Successive versions name a file, so that the last of these tells until when it is needed.
        """
        if self._cleaned is None or not current.descends_from(self._cleaned):
            self._collected, self._last_named = set(), {}
        self._cleaned, numbers = current, {current.version, *kept}
        for number in numbers - self._collected:
            for file in (current if number == current.version else self.read(number)).files:
                self._last_named[file.path] = max(number, self._last_named.get(file.path, 0))
            self._collected.add(number)
        self._collected &= numbers
        self._last_named = {path: last for path, last in self._last_named.items() if last >= min(numbers)}

    def _conflict(self, manifest: Manifest) -> SupersededError:
        problem = f"another client committed version {manifest.version} first; nothing was changed, try again"
        return SupersededError(self.backend.path, version_name(manifest.version), problem)

    def overtaken(self, manifest: Manifest, newest: Manifest) -> UnknownOutcomeError:
        """Return the error for a change so long ago that descent from it is unknown."""
        return self._unknown(manifest, f"version {newest.version} was created meanwhile; refresh the index and check")

    def _unsettled(self, manifest: Manifest, error: OSError) -> UnknownOutcomeError:
        remedy = "repeat it with this index, which does not store it twice, or refresh the index and check"
        return self._unknown(manifest, f"{why(error) or repr(error)}; {remedy}")

    def _unknown(self, manifest: Manifest, reason: str) -> UnknownOutcomeError:
        problem = f"it is unknown whether the change was stored: {reason}"
        return UnknownOutcomeError(self.backend.path, version_name(manifest.version), problem)

    def _no_index(self) -> StorageError:
        return StorageError(self.backend.path, "versions", "there are none; this folder is not a topsign index")
