"""Storage: segments of entries, snapshots, and stores in memory or in a folder."""

from .folder_store import exists

__all__ = ["exists"]
