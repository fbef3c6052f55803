"""Lazy evaluation: a cached property without a lock, and optional extensions, imported by name at their first use.

This is the only module that imports from higher layers. Extensions need optional packages, and register their engines
and encoders with the lower layers. ``tests/test_layers.py`` reads the table and checks all other imports.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class lazy(Generic[Value]):
    """Cached property: the method's result is stored in the object under the method's name.

    Unlike ``functools.cached_property`` in Python 3.11, it has no lock, which all objects of a class would share and
    which would stay locked in a process forked while another thread holds it. Threads may compute a value twice.
    """

    def __init__(self, method: Callable[[Any], Value]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object | None, owner: type) -> lazy[Value] | Value:
        if instance is None:
            return self
        value = self._method(instance)
        instance.__dict__[self._name] = value
        return value


EXTENSIONS = {"gpu": "topsign.gpu"}


def load_extension(name: str) -> ModuleType:
    """Import an extension; raise ImportError that names the package to install."""
    return import_module(EXTENSIONS[name])
