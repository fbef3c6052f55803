"""Compaction: files that only older versions of the manifest need are deleted."""

from __future__ import annotations

from dataclasses import dataclass

from .._checks import check_count
from .._named import named
from ..signals import Location
from .folder import Folder
from .manifest import manifest_name, read_manifest, versions_in


@dataclass(frozen=True)
class Compacted:
    """What :func:`compact` has deleted."""

    n_versions: int  # of the manifest
    n_shards: int
    n_bytes: int  # of the shards


@named
def compact(out: Location, *, keep: int = 1) -> Compacted:
    """Deletes the versions of the manifest before the newest ones, and the shards that only those need.

    Shards that no manifest names stay: a job that runs may have written them. An interruption loses nothing, the next
    call goes on. An index that has an older version open goes on as long as its workers live; its ``refresh`` loads
    the newest.

    Parameters
    ----------
    out : path or URL
        What :func:`encode` or :func:`split` has written.
    keep : int
        How many versions to keep, the newest ones.
    """
    folder = Folder.at(out)
    read_manifest(folder)  # which says what is wrong where there is none
    versions = versions_in(folder)
    n_kept = check_count(keep, "keep")
    older, newer = versions[:-n_kept], versions[-n_kept:]
    needed = {shard.file for version in newer for shard in read_manifest(folder, version).shards}
    named = {shard.file for version in older for shard in read_manifest(folder, version).shards}
    sizes = folder.sizes()
    unneeded = sorted((named - needed) & sizes.keys())
    for file in unneeded:  # before the manifests: those that are left say what is left to do
        folder.remove(file)
    for version in older:
        folder.remove(manifest_name(version))
    return Compacted(len(older), len(unneeded), sum(sizes[file] for file in unneeded))
