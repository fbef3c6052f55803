"""Filters: conditions on metadata, written like Python and parsed without evaluating code.

    where = "year >= 2020 and (lang in ('en', 'it') or not draft == true)"

A condition compares a field by ``== != < <= > >=``, ``in`` or ``not in`` with numbers, quoted strings, ``true``,
``false`` and ``null``, and combines comparisons by ``and``, ``or``, ``not`` and parentheses. Fields of nested objects
are written ``author.name``, other names in quotes, ``'doc-type' == 'letter'``. A missing field is ``null``, which
equals only ``null`` and is neither smaller nor larger than any value. Integers of any size are compared exactly. Dates
are compared as ISO strings.
"""

from __future__ import annotations

import ast
import datetime
import enum
import json
import math
import operator
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .._arrays import Booleans, Float64, Int32
from ..store.segments import Segment, Snapshot, parse_notes

Where = str | Mapping[str, Any]

ORDERED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
LITERALS = {"true": True, "false": False, "null": None}
MAX_LENGTH, MAX_DEPTH = 100_000, 100
"""Maximum length of a condition, and maximum nesting of parentheses and ``not``."""

EXAMPLE = "\"year >= 2020 and lang in ('en', 'it')\""


@dataclass(frozen=True)
class FieldTest:
    """A field, ``==``, ``in`` or an order, and the values it is compared with."""

    field: str
    sign: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Joined:
    """Conditions of which all (``and``), one (``or``) or none (``not``) must hold."""

    sign: str
    parts: tuple[Any, ...]


Condition = FieldTest | Joined


class _Messages(reprlib.Repr):
    def repr_int(self, value: int, level: int) -> str:
        return repr(value) if value.bit_length() <= 2**10 else f"an integer of {value.bit_length():,} bits"


_messages = _Messages()
_messages.maxstring = _messages.maxother = 200
brief = _messages.repr
"""Return a value as error messages show it, shortened if it is long or deeply nested."""


def parse_where(where: Where) -> Condition:
    """Parse a condition from a string or a dict of equalities."""
    if isinstance(where, Mapping):
        return Joined("and", tuple(_equality(field, value) for field, value in where.items()))
    if not isinstance(where, str):
        raise TypeError(
            f"where must be a string such as {EXAMPLE}, or a dict of equalities, got {type(where).__name__}"
        )
    return _parse_text(where)


def tests_of(condition: Condition) -> list[FieldTest]:
    """Return the tests of a condition, ordered by field."""
    if isinstance(condition, FieldTest):
        return [condition]
    return sorted((test for part in condition.parts for test in tests_of(part)), key=lambda test: test.field)


def fields_of(condition: Condition) -> set[str]:
    """Return the fields that a condition looks at."""
    return {test.field for test in tests_of(condition)}


def select(snapshot: Snapshot, where: Where) -> Booleans:
    """Return whether each entry of a snapshot, by row, is alive and satisfies a condition.

    Raises ValueError if no entry has a field that the condition names, or none of the type that it is ordered by.
    """
    if len(snapshot):
        check_fields(where, known_fields(snapshot, where))
    return passing(snapshot, where)


def passing(snapshot: Snapshot, where: Where) -> Booleans:
    """Apply :func:`select` to a part of the entries, without checking fields that other parts may have."""
    condition = parse_where(where)
    masks = [
        _evaluate(condition, _columns(segment, fields_of(condition)), len(segment)) & segment.living
        for segment in snapshot.segments
    ]
    return np.concatenate([np.empty(0, bool), *masks])


KnownFields = set[tuple[str, type]]
"""Fields of a condition with the types of values that entries have in them."""


def known_fields(snapshot: Snapshot, where: Where) -> KnownFields:
    """Return the fields of a condition that living entries have, with the types of their values."""
    fields = fields_of(parse_where(where))
    known: KnownFields = set()
    for segment in snapshot.segments:
        columns, living = _columns(segment, fields), None if segment.alive is None else segment.living
        known |= {(field, kind) for field in fields for kind in columns[field].kinds(living)}
    return known


def check_fields(where: Where, known: KnownFields) -> None:
    """Raise ValueError if a condition names a field that no entry has, or orders it by a type that none has."""
    names = {field for field, _ in known}
    for test in tests_of(parse_where(where)):
        if test.field not in names:
            remedy = "get an entry to see its fields"
            if test.field in ("id", "ids"):
                remedy = "ids are not metadata; use among= to restrict a search to ids"
            raise ValueError(
                f"where names the field {brief(test.field)}, which no entry has in its metadata; got {brief(where)}; "
                f"{remedy}"
            )
        if test.sign in ORDERED and (test.field, _key(test.values[0])[0]) not in known:
            had = " and ".join(sorted(KIND_NAMES[kind] for field, kind in known if field == test.field))
            wanted = KIND_NAMES[_key(test.values[0])[0]]
            raise ValueError(
                f"where orders {brief(test.field)} by {brief(test.values[0])}, but no entry has {wanted} in that "
                f"field, only {had}; got {brief(where)}"
            )


@dataclass(frozen=True, eq=False)
class Column:
    """One field of the entries of a segment: its distinct values, and which of them each entry has."""

    codes: Int32  # (n_entries,) 0: null
    known: dict[tuple[type, Any], int]  # code of each value
    numbers: Float64  # nearest float of each code that is a number, else nan

    @classmethod
    def of(cls, values: Iterable[Any], n_entries: int) -> Column:
        """Return the column of these values."""
        known: dict[tuple[type, Any], int] = {_key(None): 0}
        codes = np.fromiter((known.setdefault(_key(value), len(known)) for value in values), np.int32, n_entries)
        numbers = np.array([_nearest(value) if kind is float else np.nan for kind, value in known], np.float64)
        return cls(codes, known, numbers)

    def kinds(self, living: Booleans | None) -> set[type]:
        """Return the types of the values that entries have, or only living ones."""
        there = np.ones(len(self.known), bool) if living is None else np.zeros(len(self.known), bool)
        if living is not None:
            there[self.codes[living]] = True
        return {kind for (kind, _), code in self.known.items() if code and there[code]}

    def holds(self, sign: str, values: tuple[Any, ...]) -> Booleans:
        """Return whether a comparison holds for each entry."""
        passing = np.zeros(len(self.known), bool)
        if sign == "in":
            passing[[self.known[key] for value in values if (key := _key(value)) in self.known]] = True
        elif isinstance(values[0], str):
            for (kind, value), code in self.known.items():
                passing[code] = kind is str and ORDERED[sign](value, values[0])
        else:
            limit = _nearest(values[0])
            passing = ORDERED[sign](self.numbers, limit)
            close = set(np.flatnonzero(self.numbers == limit).tolist())  # floats of different integers may be equal
            for (_, value), code in self.known.items() if close else ():
                if code in close:
                    passing[code] = ORDERED[sign](value, values[0])
        return passing[self.codes]


def _nearest(number: float) -> float:
    """Return the nearest float of a number; infinity for integers beyond all floats."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


_cached: WeakKeyDictionary[Any, dict[str, Column]] = WeakKeyDictionary()
"""Columns of fields that were asked for, of segments that are still in use."""


def _columns(segment: Segment, fields: set[str]) -> dict[str, Column]:
    """Return fields of a segment's metadata as columns, parsed at their first use."""
    found = _cached.setdefault(segment.columns, {})
    metadata, n_entries = segment.columns.metadata, len(segment)
    for field in sorted(field for field in fields if field not in found):  # other threads may add fields meanwhile
        if metadata is None:
            found[field] = Column.of([None] * n_entries, n_entries)
        else:
            texts = metadata.texts(range(n_entries))
            try:
                notes = json.loads(b"[" + b",".join(text or b"null" for text in texts) + b"]")
            except (ValueError, RecursionError):
                notes = []
            if len(notes) != n_entries:
                notes = parse_notes(texts)  # raises unless each is an object
            found[field] = Column.of((_value(note, field) for note in notes), n_entries)
    return found


def _value(note: Any, field: str) -> Any:
    if not isinstance(note, dict):
        return None
    if field in note:
        return note[field]
    for part in field.split("."):
        if not isinstance(note, dict) or part not in note:
            return None
        note = note[part]
    return note


def _key(value: Any) -> tuple[type, Any]:
    """Return a value that can be looked up: true is not 1, and lists and objects are compared by their JSON."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value), value
    if isinstance(value, (int, float)):
        return float, value  # Python compares integers and floats exactly, and equal ones have equal hashes
    return list, json.dumps(value, sort_keys=True)


KIND_NAMES = {bool: "true or false", str: "a text", float: "a number", list: "a list or an object"}


def _evaluate(condition: Condition, table: dict[str, Column], n_entries: int) -> Booleans:
    if isinstance(condition, FieldTest):
        return table[condition.field].holds(condition.sign, condition.values)
    masks = [_evaluate(part, table, n_entries) for part in condition.parts]
    if condition.sign == "not":
        return ~masks[0]
    join = np.logical_and if condition.sign == "and" else np.logical_or
    return np.asarray(join.reduce([np.full(n_entries, condition.sign == "and"), *masks]))


def _equality(field: Any, value: Any) -> FieldTest:
    if not isinstance(field, str):
        raise TypeError(f"where must name fields by texts, got {brief(field)}")
    several = isinstance(value, (list, tuple, set, frozenset, range, np.ndarray))
    return FieldTest(field, "in", tuple(_plain(one, field) for one in value) if several else (_plain(value, field),))


def _plain(value: Any, field: str) -> Any:
    """Return a value of a dict as JSON has it: NumPy scalars and enums as what they hold, dates as ISO texts."""
    value = value.value if isinstance(value, enum.Enum) else value
    value = value.item() if isinstance(value, (np.generic, np.ndarray)) and np.ndim(value) == 0 else value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"where must compare {brief(field)} with finite numbers, which JSON has, got {value!r}")
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, Mapping) and any(str(key).startswith("$") for key in value):
        raise ValueError(
            f"where takes a dict of equalities, got {brief(value)} for {brief(field)}; write other comparisons as a "
            f"text, such as {EXAMPLE}"
        )
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise TypeError(
            f"where must compare {brief(field)} with numbers, texts, dates, true, false or None, got {brief(value)} of "
            f"type {type(value).__name__}"
        ) from None
    return value


@lru_cache(maxsize=64)
def _parse_text(text: str) -> Condition:
    """Parse a condition as a Python expression, of which only comparisons and their combinations are accepted."""
    try:
        if len(text) > MAX_LENGTH:
            raise ValueError(f"it has {len(text):,} characters, at most {MAX_LENGTH:,} are read")
        return _condition(ast.parse(text.strip(), mode="eval").body, 0)
    except SyntaxError as error:
        problem = error.msg
    except (MemoryError, RecursionError):
        problem = "it is nested too deeply"
    except ValueError as error:
        problem = str(error)
    raise ValueError(f"where={brief(text)} is not a condition: {problem}; write it like {EXAMPLE}")


def _condition(node: ast.expr, depth: int) -> Condition:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(node, ast.BoolOp):
        joined = "and" if isinstance(node.op, ast.And) else "or"
        return Joined(joined, tuple(_condition(part, depth + 1) for part in node.values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return Joined("not", (_condition(node.operand, depth + 1),))
    if not isinstance(node, ast.Compare):
        raise ValueError(f"a comparison is expected, got {_shown(node)}")
    if len(node.ops) > 1:
        raise ValueError(f"compare one value at a time and join with and, got {_shown(node)}")
    field, sign, right = _field(node.left), type(node.ops[0]), node.comparators[0]
    if sign in (ast.In, ast.NotIn):
        if not isinstance(right, (ast.Tuple, ast.List, ast.Set)):
            right = ast.Tuple([right])  # ("en") is one value in parentheses
        test = FieldTest(field, "in", tuple(_literal(one) for one in right.elts))
    elif sign in (ast.Eq, ast.NotEq):
        test = FieldTest(field, "in", (_literal(right),))
    elif sign in SIGNS:
        value = _literal(right)
        if isinstance(value, bool) or value is None:
            raise ValueError(f"{SIGNS[sign]} compares numbers or texts, got {value!r}")
        test = FieldTest(field, SIGNS[sign], (value,))
    else:
        raise ValueError(f"a comparison is one of == != < <= > >= in, not in; got {_shown(node)}")
    return Joined("not", (test,)) if sign in (ast.NotEq, ast.NotIn) else test


def _field(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id in LITERALS:
        raise ValueError(f"a field is expected before the comparison, got {_shown(node)}")
    return ".".join([node.id, *reversed(parts)])


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id in LITERALS:
        return LITERALS[node.id]
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    value = inner.value if isinstance(inner, ast.Constant) else ...
    if isinstance(value, (int, float)) and not (negative and isinstance(value, bool)):
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("a number is beyond the largest float")
        return -value if negative else value
    if (value is None or isinstance(value, str)) and not negative:
        return value
    raise ValueError(f"a number, a text in quotes, true, false or null is expected, got {_shown(node)}")


def _shown(node: ast.expr) -> str:
    text = ast.unparse(node)
    return repr(text if len(text) <= 40 else text[:40] + "...")
