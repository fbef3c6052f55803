"""The pages of an LMDB file, read and checked before LMDB maps them.

LMDB trusts its own pages: one flipped byte among them can crash a process that follows it, a truncated file kills the
first that touches what is missing, and a free page that is not free would be overwritten. So every page of both trees
(records, free pages) is read here with plain reads and checked: numbers, kinds, bounds, order of keys, counts, and
that every page of the file is in use exactly once or free. Values are not read; they carry checksums of their own.
``docs/file-format.md`` describes the pages.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from ...errors import StorageError

HEADER = struct.Struct("<QHHHH")  # page number, padding, kind, end of the pointers, start of the nodes
OVERFLOW = struct.Struct("<QHHI")  # page number, padding, kind, pages
NODE = struct.Struct("<HHHH")  # size or child (low, high), flags (or more of the child), size of the key
META = struct.Struct("<IIQQ" + 2 * "IHHQQQQQ" + "QQ")

BRANCH, LEAF, OVERFLOWING, META_PAGE = 1, 2, 4, 8
MAGIC, DATA_VERSION = 0xBEEFC0DE, 1
FREE_FLAGS = 0x4008  # keys are integers; one file without a folder
BIG_VALUE = 1
NO_PAGE = 2**64 - 1


@dataclass(frozen=True)
class Tree:
    """One tree, as a meta page describes it."""

    page_bytes: int
    flags: int
    depth: int
    n_branches: int
    n_leaves: int
    n_overflows: int
    n_entries: int
    root: int


@dataclass(frozen=True)
class Meta:
    """One of the two meta pages: the file as a transaction left it."""

    free: Tree
    records: Tree
    last_page: int
    transaction: int


class Node(NamedTuple):
    """A key, and the value or page that it leads to."""

    key: bytes
    number: int  # of the child page, in a branch; of bytes of the value, in a leaf
    big: bool  # whether the value has pages of its own
    start: int  # where the value, or the number of its first page, stands in this one


class PageReader:
    """Reads and checks the pages of one file."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self._seen: dict[bytes, list[Node]] = {}  # nodes of pages by what they hold: of this walk
        self._known: dict[bytes, list[Node]] = {}  # and of the one before

    def metas(self) -> tuple[Meta, Meta]:
        """The newer meta page, then the older."""
        for _ in range(1000):
            first = self._read(0, HEADER.size + META.size, "meta page 0")
            size = self._meta(0, first).free.page_bytes
            second = self._read(size, HEADER.size + META.size, "meta page 1")
            try:
                return self._ordered(self._meta(0, first), self._meta(1, second))
            except StorageError:
                again = self._read(0, len(first), "meta page 0"), self._read(size, len(second), "meta page 1")
                if again == (first, second):  # else a writer was at them
                    raise
        self._fail("meta pages", "changed whenever they were read; try again")

    def _ordered(self, first: Meta, second: Meta) -> tuple[Meta, Meta]:
        """The newer first. Transactions alternate between the two, so they are one apart."""
        ids = first.transaction, second.transaction
        apart = 0 if ids == (0, 0) else 1
        if second.free.page_bytes != first.free.page_bytes or abs(ids[0] - ids[1]) != apart or (apart and ids[0] % 2):
            self._fail("meta pages", f"transactions {ids[0]} and {ids[1]} cannot follow each other")
        return (first, second) if ids[0] > ids[1] else (second, first)

    def values(self, meta: Meta) -> dict[bytes, tuple[int, int]]:
        """Checks every page that this meta page leads to; returns offset and size of every record's value."""
        used: list[tuple[int, int]] = [(0, 2)]
        known, self._seen = self._seen, {}
        self._known = known
        free_lists = self._walk(meta, meta.free, "tree of free pages", used)
        values = self._walk(meta, meta.records, "tree of records", used)
        free: list[npt.NDArray[np.uint64]] = []
        for key, (offset, size) in free_lists.items():
            section = f"free pages of transaction {int.from_bytes(key, 'little')}"
            listed = np.frombuffer(self._read(offset, size, section), "<u8")
            if size % 8 or not size or listed[0] >= len(listed):
                self._fail(section, "the list does not fit its record")
            free.append(listed[1 : 1 + int(listed[0])])
        firsts = np.concatenate([np.array([first for first, _ in used], np.uint64), *free])
        spans = np.ones((len(firsts), 2), np.uint64)
        spans[:, 0] = firsts
        spans[: len(used), 1] = [n_pages for _, n_pages in used]
        spans = spans[np.argsort(firsts, kind="stable")]
        ends = spans.sum(axis=1)
        if (spans[1:, 0] != ends[:-1]).any() or ends[-1] != meta.last_page + 1:
            self._fail("pages", "some are in use twice, in use and free, or neither")
        return values

    def value(self, meta: Meta, key: bytes) -> bytes | None:
        """One value, read from the file: only the pages that lead to it are checked. None where there is none."""
        section, size, number = f"tree of records, {key.decode()}", meta.free.page_bytes, meta.records.root
        for depth in range(1, meta.records.depth + 1):
            where = f"{section}, page {number}"
            nodes = self._page(number, depth, meta, meta.records, where)[2]
            if depth < meta.records.depth:
                number = [node for i, node in enumerate(nodes) if not i or node.key <= key][-1].number
                continue
            for node in nodes:
                if node.key == key:
                    offset = number * size + node.start
                    if node.big:
                        (first,) = struct.unpack("<Q", self._read(offset, 8, where))
                        n_pages = -(-(HEADER.size + node.number) // size)
                        self._check_overflow(first, n_pages, meta, os.fstat(self.descriptor).st_size, section)
                        offset = first * size + HEADER.size
                    return self._read(offset, node.number, where)
        return None

    def _meta(self, number: int, page: bytes) -> Meta:
        section = f"meta page {number}"
        stored, _, kind, _, _ = HEADER.unpack_from(page)
        magic, version, _, _, *rest = META.unpack_from(page, HEADER.size)
        if magic != MAGIC or kind != META_PAGE or stored != number:
            self._fail(section, "not that of an LMDB file; is this a topsign index at all?")
        if version != DATA_VERSION:
            self._fail(section, f"LMDB data version {version}, this library reads {DATA_VERSION}")
        meta = Meta(Tree(*rest[:8]), Tree(*rest[8:16]), *rest[16:])
        size = meta.free.page_bytes
        if size not in {2**n for n in range(9, 17)} or meta.free.flags != FREE_FLAGS:
            self._fail(section, f"pages of {size} bytes, flags {meta.free.flags:#x}")
        if meta.transaction == 0 and (meta.free.root, meta.records.root, meta.last_page) != (NO_PAGE, NO_PAGE, 1):
            self._fail(section, "damaged: transaction 0 of an LMDB file has written nothing, but this page says it has")
        if meta.records.page_bytes or meta.records.flags:
            self._fail(section, f"records with flags {meta.records.flags:#x}")
        return meta

    def _walk(self, meta: Meta, tree: Tree, section: str, used: list[tuple[int, int]]) -> dict[bytes, tuple[int, int]]:
        """Offset and size of every value of a tree, whose pages are added to ``used``."""
        values: dict[bytes, tuple[int, int]] = {}
        counts = {BRANCH: 0, LEAF: 0, OVERFLOWING: 0}
        size = meta.free.page_bytes
        integers = tree is meta.free
        length = os.fstat(self.descriptor).st_size

        def order(key: bytes) -> Any:
            return int.from_bytes(key, "little") if integers else key

        def visit(number: int, depth: int, low: bytes | None, high: bytes | None) -> None:
            where = f"{section}, page {number}"
            page, kind, nodes = self._page(number, depth, meta, tree, where)
            used.append((number, 1))
            self._seen[page] = nodes
            counts[kind] += 1
            # A branch does not store its first key, which is the lower bound; the first key of a leaf may equal it.
            keys = [low or b"" if kind == BRANCH else nodes[0].key, *(node.key for node in nodes[1:])]
            ranks = [order(key) for key in keys] if integers else keys
            rising = all(before < after for before, after in pairwise(ranks))
            if not rising or (low and ranks[0] < order(low)) or (high and ranks[-1] >= order(high)):
                self._fail(where, "its keys are out of order")
            for i, node in enumerate(nodes):
                if kind == BRANCH:
                    visit(node.number, depth + 1, keys[i], keys[i + 1] if i + 1 < len(keys) else high)
                elif node.big:
                    (first,) = struct.unpack_from("<Q", page, node.start)
                    n_pages = -(-(HEADER.size + node.number) // size)
                    self._check_overflow(first, n_pages, meta, length, section)
                    used.append((first, n_pages))
                    counts[OVERFLOWING] += n_pages
                    values[node.key] = first * size + HEADER.size, node.number
                else:
                    values[node.key] = number * size + node.start, node.number

        if tree.root != NO_PAGE:
            visit(tree.root, 1, None, None)
        elif tree.depth:
            self._fail(section, f"no root, but a depth of {tree.depth}")
        found = counts[BRANCH], counts[LEAF], counts[OVERFLOWING], len(values)
        stated = tree.n_branches, tree.n_leaves, tree.n_overflows, tree.n_entries
        if found != stated:
            self._fail(section, f"{stated} branches, leaves, overflow pages and records expected, {found} found")
        return values

    def _page(self, number: int, depth: int, meta: Meta, tree: Tree, where: str) -> tuple[bytes, int, list[Node]]:
        """A page of a tree, its kind and its nodes; a page that holds what it held before is not parsed again."""
        size = meta.free.page_bytes
        if not 2 <= number <= meta.last_page or depth > tree.depth:
            self._fail(where, f"outside of pages 2 to {meta.last_page}, or deeper than {tree.depth}")
        page = self._read(number * size, size, where)
        stored, _, kind, lower, upper = HEADER.unpack_from(page)
        expected = LEAF if depth == tree.depth else BRANCH
        if stored != number or kind != expected or not HEADER.size <= lower <= upper <= size or lower % 2:
            self._fail(where, f"its head says page {stored}, kind {kind}, room from {lower} to {upper}")
        nodes = self._known.get(page)
        return page, kind, self._nodes(page, kind, lower, upper, where) if nodes is None else nodes

    def _nodes(self, page: bytes, kind: int, lower: int, upper: int, where: str) -> list[Node]:
        """The nodes of a page, packed without gaps from ``upper`` to the end; LMDB would add others below ``upper``."""
        nodes, spans = [], []
        for (at,) in struct.iter_unpack("<H", page[HEADER.size : lower]):
            if at % 2 or at + NODE.size > len(page):
                self._fail(where, f"a node at {at}")
            low, high, flags, key_size = NODE.unpack_from(page, at)
            start = at + NODE.size + key_size
            number = low | high << 16 | (flags << 32 if kind == BRANCH else 0)
            held = 0 if kind == BRANCH else 8 if flags == BIG_VALUE else number
            if start + held > len(page) or (kind == LEAF and flags not in (0, BIG_VALUE)):
                self._fail(where, f"a node of {key_size} and {held} bytes with flags {flags} at {at}")
            nodes.append(Node(page[at + NODE.size : start], number, kind == LEAF and flags == BIG_VALUE, start))
            spans.append((at, start + held + (start + held) % 2))
        bounds = [(0, upper), *sorted(spans), (len(page), 0)]
        if not nodes or any(before[1] != after[0] for before, after in pairwise(bounds)):
            self._fail(where, "its nodes overlap, or leave gaps")
        return nodes

    def _check_overflow(self, number: int, n_pages: int, meta: Meta, length: int, section: str) -> None:
        """Pages of one large value."""
        size = meta.free.page_bytes
        if not 2 <= number <= meta.last_page + 1 - n_pages:
            self._fail(f"{section}, page {number}", f"{n_pages} pages that end after page {meta.last_page}")
        if (number + n_pages) * size > length:
            self._check_length((number + n_pages) * size, f"{section}, page {number}")
        head = os.pread(self.descriptor, OVERFLOW.size, number * size)
        stored, _, kind, stated = OVERFLOW.unpack(head) if len(head) == OVERFLOW.size else (0, 0, 0, 0)
        if (stored, kind, stated) != (number, OVERFLOWING, n_pages):
            problem = f"its head says page {stored}, kind {kind}, {stated} pages instead of {n_pages}"
            self._fail(f"{section}, page {number}", problem)

    def _read(self, offset: int, size: int, where: str) -> bytes:
        self._check_length(offset + size, where)
        found = os.pread(self.descriptor, size, offset)
        if len(found) < size:
            self._fail(where, f"{len(found)} of {size} bytes could be read")
        return found

    def _check_length(self, end: int, where: str) -> None:
        length = os.fstat(self.descriptor).st_size
        if end > length:
            self._fail(where, f"truncated: the file has {length} bytes, this needs {end}")

    def _fail(self, section: str, problem: str) -> NoReturn:
        raise StorageError(self.path, section, problem)
