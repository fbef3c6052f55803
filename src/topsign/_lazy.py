"""A property that is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class lazy(Generic[Value]):
    """Decorator of a method: its result is kept in the object, under the method's name.

    As ``functools.cached_property``, whose lock in Python 3.11 is shared by all objects of a class and stays
    locked in a process that is forked while another thread holds it. Threads may compute the same value twice.
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
