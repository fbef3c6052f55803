"""Views: an LMDB file as one transaction left it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import lmdb
import numpy as np

from ..._arrays import Bytes

if TYPE_CHECKING:
    from .lmdb_environment import Environment


class View:
    """The file as one transaction left it; its pages stay as they are until nothing refers to it any more."""

    def __init__(self, environment: Environment, transaction: lmdb.Transaction, token: int) -> None:
        self.environment = environment
        self._transaction = transaction
        self._token = token
        self._lock = threading.Lock()
        self.number = transaction.id()

    def get(self, key: bytes) -> Bytes | None:
        """A value where it lies in the map, or None. The array keeps this view open."""
        with self._lock:
            value = self._transaction.get(key)
        if value is None:
            return None
        return np.asarray(_Value(self, np.frombuffer(value, np.uint8)))

    def __del__(self) -> None:
        if self.environment.is_ours:  # a forked child must not free its parent's reader slot
            self._transaction.abort()
        self.environment.open_views.discard(self._token)
        self.environment.close_if_unused()


class _Value:
    """Bytes of the map that keep their view open: NumPy holds on to the object whose interface it took."""

    def __init__(self, view: View, value: Bytes) -> None:
        self.view = view
        self.__array_interface__ = value.__array_interface__
