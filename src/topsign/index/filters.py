"""Filters: conditions on the metadata of entries, parsed from a small grammar and never evaluated as code.

    where = "year >= 2020 and (lang in ('en', 'it') or not draft == true)"

Comparisons ``== != < <= > >=`` and ``in``, ``not in`` of a field with numbers, texts in quotes, ``true``, ``false`` and
``null``, joined by ``and``, ``or``, ``not`` and parentheses. Fields of nested objects are written ``author.name``. A
field that an entry does not have is ``null``: equal to ``null`` alone, and neither smaller nor larger than anything.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import numpy as np

from .._arrays import Booleans, Float64, Int32
from ..store import Metadata, Segment, Snapshot

Where = str | Mapping[str, Any]

TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|-?\.\d+)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<name>[^\W\d][\w.-]*)|(?P<sign>==|!=|<=|>=|<>|[<>=(),]))"
)
ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
LITERALS = {"true": True, "false": False, "null": None, "none": None}
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


def parse_where(where: Where) -> Condition:
    """The condition that a text or a dict of equalities asks for."""
    if isinstance(where, Mapping):
        return Joined("and", tuple(_equality(field, value) for field, value in where.items()))
    if not isinstance(where, str):
        raise TypeError(f"where must be a text such as {EXAMPLE}, or a dict of equalities, got {type(where).__name__}")
    return _Parser(where).parse()


def fields_of(condition: Condition) -> set[str]:
    """Fields that a condition looks at."""
    if isinstance(condition, FieldTest):
        return {condition.field}
    return set().union(*(fields_of(part) for part in condition.parts))


def select(snapshot: Snapshot, where: Where) -> Booleans:
    """Whether each entry of a snapshot, by place, is alive and fulfils a condition.

    Raises ValueError where no entry has a field that the condition names.
    """
    if len(snapshot):
        check_fields(where, known_fields(snapshot, where))
    return passing(snapshot, where)


def passing(snapshot: Snapshot, where: Where) -> Booleans:
    """As :func:`select`, for a part of the entries: the others may have the fields that these lack."""
    condition = parse_where(where)
    masks = [
        _evaluate(condition, _columns(segment, fields_of(condition)), len(segment)) & segment.living
        for segment in snapshot.segments
    ]
    return np.concatenate([np.empty(0, bool), *masks])


def known_fields(snapshot: Snapshot, where: Where) -> set[str]:
    """Fields of a condition that some entry has in its metadata."""
    fields = fields_of(parse_where(where))
    tables = [_columns(segment, fields) for segment in snapshot.segments]
    return {field for field in fields if not all(table[field].is_empty for table in tables)}


def check_fields(where: Where, known: set[str]) -> None:
    """Raises ValueError where a condition names a field that no entry has."""
    for field in sorted(fields_of(parse_where(where)) - known):
        remedy = "index[id].metadata shows the fields of an entry"
        if field in ("id", "ids"):
            remedy = "ids are not metadata: among= takes those to consider"
        raise ValueError(
            f"where names the field {field!r}, which no entry has in its metadata; got {where!r}; {remedy}"
        )


@dataclass(frozen=True, eq=False)
class Column:
    """One field of the entries of a segment: its distinct values, and which of them each entry has."""

    codes: Int32  # (n_entries,) 0: null
    known: dict[tuple[type, Any], int]  # code of each value; numbers are floats
    numbers: Float64  # value of each code where it is a number, else nan

    @classmethod
    def of(cls, values: Iterable[Any], n_entries: int) -> Column:
        known: dict[tuple[type, Any], int] = {_key(None): 0}
        codes = np.fromiter((known.setdefault(_key(value), len(known)) for value in values), np.int32, n_entries)
        numbers = np.array([value if kind is float else np.nan for kind, value in known], np.float64)
        return cls(codes, known, numbers)

    @property
    def is_empty(self) -> bool:
        """Whether no entry has the field."""
        return len(self.known) == 1

    def holds(self, sign: str, values: tuple[Any, ...]) -> Booleans:
        """Whether a comparison holds for each entry."""
        passing = np.zeros(len(self.known), bool)
        if sign == "in":
            passing[[self.known[key] for value in values if (key := _key(value)) in self.known]] = True
        elif isinstance(values[0], str):
            for (kind, value), code in self.known.items():
                passing[code] = kind is str and ORDERED[sign](value, values[0])
        else:
            passing = ORDERED[sign](self.numbers, float(values[0]))
        return passing[self.codes]


_cached: WeakKeyDictionary[Any, dict[str, Column]] = WeakKeyDictionary()
"""Columns of fields that were asked for, of segments that are still in use."""


def _columns(segment: Segment, fields: set[str]) -> dict[str, Column]:
    """The fields of a segment's metadata, parsed at their first use."""
    found = _cached.setdefault(segment.columns, {})
    metadata, n_entries = segment.columns.metadata, len(segment)
    for field in sorted(fields - found.keys()):
        if metadata is None:
            found[field] = Column.of([None] * n_entries, n_entries)
        else:
            found[field] = _scan_field(metadata, field) or _parse_field(metadata, field)
    return found


def _parse_field(metadata: Metadata, field: str) -> Column:
    texts = metadata.texts(range(len(metadata.starts) - 1))
    notes = json.loads(b"[" + b",".join(text or b"null" for text in texts) + b"]")
    return Column.of((_value(note, field) for note in notes), len(texts))


def _scan_field(metadata: Metadata, field: str) -> Column | None:
    """As :func:`_parse_field`, several times as fast, for objects that hold no others; None for all others.

    Quotes within JSON strings are escaped, so that a key between ``{`` or ``,`` and a colon is a key of the object.
    """
    text, n_entries = metadata.text.tobytes(), len(metadata.starts) - 1
    if text.count(b"{") != np.count_nonzero(np.diff(metadata.starts)):
        return None  # objects within objects, or braces in texts
    key = re.escape(json.dumps(field, ensure_ascii=False).encode()) + b":"
    # The key first, which finds its places fast; then whether a key may stand there; then the value.
    pattern = re.compile(key + rb"(?<=[{,]" + key + rb')("[^"\\]*(?:\\.[^"\\]*)*"|\[|[^,}\[]+)', re.DOTALL)
    tokens = pattern.findall(text)
    distinct = dict.fromkeys(tokens)
    if b"[" in distinct:
        return None
    column = Column.of(json.loads(b"[" + b",".join(distinct) + b"]"), len(distinct))
    codes = dict(zip(distinct, column.codes.tolist(), strict=True))
    values = np.fromiter(map(codes.__getitem__, tokens), np.int32, len(tokens))
    if len(tokens) < n_entries:  # some lack the field
        places = np.fromiter((match.start() for match in pattern.finditer(text)), np.int64, len(tokens))
        values, found = np.zeros(n_entries, np.int32), values
        values[np.searchsorted(metadata.starts, places, side="right") - 1] = found
    return Column(values, column.known, column.numbers)


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
    """A value that can be looked up: true is not 1, and lists and objects are compared by their JSON."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value), value
    if isinstance(value, (int, float)):
        return float, float(value)
    return list, json.dumps(value, sort_keys=True)


def _evaluate(condition: Condition, table: dict[str, Column], n_entries: int) -> Booleans:
    if isinstance(condition, FieldTest):
        return table[condition.field].holds(condition.sign, condition.values)
    masks = [_evaluate(part, table, n_entries) for part in condition.parts]
    if condition.sign == "not":
        return ~masks[0]
    joined = np.full(n_entries, condition.sign == "and")
    for mask in masks:
        joined = joined & mask if condition.sign == "and" else joined | mask
    return joined


def _equality(field: Any, value: Any) -> FieldTest:
    if not isinstance(field, str):
        raise TypeError(f"where must name fields by texts, got {field!r}")
    return FieldTest(field, "in", tuple(value) if isinstance(value, (list, tuple, set)) else (value,))


class _Parser:
    """Recursive descent over the tokens of a condition."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at = text, list[tuple[str, str]](), 0
        end = 0
        while text[end:].strip():
            match = TOKEN.match(text, end)
            if match is None:
                self.fail(f"cannot read {text[end:].strip()[:12]!r}")
            end = match.end()
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind]))

    def fail(self, problem: str) -> NoReturn:
        raise ValueError(f"where={self.text!r} is not a condition: {problem}; write it like {EXAMPLE}")

    def parse(self) -> Condition:
        condition = self.either()
        if self.at < len(self.tokens):
            self.fail(f"{self.tokens[self.at][1]!r} is not expected")
        return condition

    def either(self) -> Condition:
        return self.join("or", self.both)

    def both(self) -> Condition:
        return self.join("and", self.single)

    def join(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self.took(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def single(self) -> Condition:
        if self.took("not"):
            return Joined("not", (self.single(),))
        if self.took("("):
            condition = self.either()
            self.expect(")")
            return condition
        kind, field = self.next("a field")
        if kind == "text":
            field = _unquoted(field)
        elif kind != "name" or field.lower() in LITERALS:
            self.fail(f"a field is expected, got {field!r}")
        return self.comparison(field)

    def comparison(self, field: str) -> Condition:
        if self.took("not"):
            self.expect("in")
            return Joined("not", (FieldTest(field, "in", self.values()),))
        if self.took("in"):
            return FieldTest(field, "in", self.values())
        _, sign = self.next("a comparison")
        if sign in ("=", "=="):
            return FieldTest(field, "in", (self.value(),))
        if sign in ("!=", "<>"):
            return Joined("not", (FieldTest(field, "in", (self.value(),)),))
        if sign not in ORDERED:
            self.fail(f"a comparison is expected after {field!r}, got {sign!r}")
        value = self.value()
        if isinstance(value, bool) or value is None:
            self.fail(f"{sign} compares numbers or texts, got {value!r}")
        return FieldTest(field, sign, (value,))

    def values(self) -> tuple[Any, ...]:
        self.expect("(")
        values = [self.value()]
        while self.took(","):
            values.append(self.value())
        self.expect(")")
        return tuple(values)

    def value(self) -> Any:
        kind, token = self.next("a value")
        if kind == "number":
            return float(token)
        if kind == "text":
            return _unquoted(token)
        if token.lower() in LITERALS:
            return LITERALS[token.lower()]
        self.fail(f"a number, a text in quotes, true, false or null is expected, got {token!r}")

    def next(self, what: str) -> tuple[str, str]:
        if self.at == len(self.tokens):
            self.fail(f"it ends where {what} is expected")
        self.at += 1
        return self.tokens[self.at - 1]

    def took(self, token: str) -> bool:
        found = self.at < len(self.tokens) and self.tokens[self.at][0] != "text"
        found = found and self.tokens[self.at][1].lower() == token
        self.at += found
        return found

    def expect(self, token: str) -> None:
        if not self.took(token):
            found = self.tokens[self.at][1] if self.at < len(self.tokens) else "the end"
            self.fail(f"{token!r} is expected, got {found!r}")


def _unquoted(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1])
