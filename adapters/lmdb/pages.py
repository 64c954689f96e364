"""Whether a data file holds all the pages that its last commit needs, read without LMDB.

LMDB maps the file without looking at its size; a page beyond the end is a SIGBUS. The last page number in the meta
page is only an upper bound: pages that a transaction took and gave back are counted but never written. So the file is
whole when every page beyond its end is in LMDB's list of free pages: a tree of 64-bit arrays, under the first root of
the meta page.

Source: mdb.c of LMDB 0.9, data version 1: MDB_meta, MDB_page, MDB_node, MDB_IDL.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_NO_PAGE: Final = (1 << 64) - 1
_HEADER: Final = struct.Struct("<QHHHH")  # page number, padding, flags, lower, upper
_META: Final = struct.Struct("<16x II 16x I 36x Q 48x QQ")  # magic, version, page size, free root, last page, commit
_NODE: Final = struct.Struct("<HHHH")  # low and high half of the data's size (or child's number), flags, key size
_NUMBER: Final = struct.Struct("<Q")
_BRANCH, _LEAF, _BIG = 1, 2, 1
_SMALLEST_PAGE, _LARGEST_PAGE = 512, 65536


class Missing(NamedTuple):
    """Pages, counted from the beginning of the file."""

    found: int
    expected: int


class _Meta(NamedTuple):
    magic: int
    version: int
    page_bytes: int
    free_root: int
    last_page: int
    commit: int


def last_page(handle: int, page_bytes: int) -> int:
    """The number of the last page that the newest commit in an open data file counts.

    As Environment.info() says it; that call of the driver leaves some bytes behind each time.
    """
    content = os.pread(handle, page_bytes + _META.size, 0)
    metas = (_Meta._make(_META.unpack_from(content, place)) for place in (0, page_bytes))
    return max(metas, key=lambda meta: meta.commit).last_page


def missing_pages(data: Path) -> Missing | None:
    """What is missing; None when nothing is, and for what is no LMDB file at all, which LMDB itself refuses."""
    if not data.exists():
        return None
    with data.open("rb") as file:
        meta = _newest_meta(file)
        if meta is None:
            return None
        found = file.seek(0, 2) // meta.page_bytes
        expected = meta.last_page + 1
        if found >= expected:
            return None
        try:
            free = {number for number in _free_pages(file, meta) if found <= number < expected}
        except (struct.error, ValueError):
            free = set()  # the list of free pages is itself beyond the end
    return None if len(free) == expected - found else Missing(found, expected)


def _newest_meta(file: BinaryIO) -> _Meta | None:
    first = _meta(file, 0)
    second = _meta(file, first.page_bytes) if first is not None else None
    return max(first, second, key=lambda meta: meta.commit) if first and second else None


def _meta(file: BinaryIO, place: int) -> _Meta | None:
    file.seek(place)
    content = file.read(_META.size)
    if len(content) < _META.size:
        return None
    meta = _Meta._make(_META.unpack(content))
    known = (meta.magic, meta.version) == (_MAGIC, _VERSION)
    return meta if known and _SMALLEST_PAGE <= meta.page_bytes <= _LARGEST_PAGE else None


def _free_pages(file: BinaryIO, meta: _Meta) -> Iterator[int]:
    """Raises ValueError or struct.error where the tree is damaged."""
    waiting = [] if meta.free_root == _NO_PAGE else [meta.free_root]
    seen: set[int] = set()
    while waiting:
        number = waiting.pop()
        if number in seen:
            raise ValueError(f"page {number} is its own descendant")
        seen.add(number)
        page = _read(file, meta, number * meta.page_bytes, meta.page_bytes)
        _, _, flags, lower, _ = _HEADER.unpack_from(page)
        places = struct.unpack_from(f"<{max(0, lower - _HEADER.size) // 2}H", page, _HEADER.size)
        if flags & _BRANCH:
            waiting += [_child(page, place) for place in places]
        elif flags & _LEAF:
            for place in places:
                yield from _numbers(_data(file, meta, page, place))
        else:
            raise ValueError(f"page {number} is neither branch nor leaf")


def _child(page: bytes, place: int) -> int:
    low, high, flags, _ = _NODE.unpack_from(page, place)
    return int(low | high << 16 | flags << 32)


def _data(file: BinaryIO, meta: _Meta, page: bytes, place: int) -> bytes:
    low, high, flags, key_bytes = _NODE.unpack_from(page, place)
    size = low | high << 16
    start = place + _NODE.size + key_bytes
    if not flags & _BIG:
        return page[start : start + size]
    (number,) = _NUMBER.unpack_from(page, start)
    return _read(file, meta, number * meta.page_bytes + _HEADER.size, size)


def _numbers(array: bytes) -> tuple[int, ...]:
    """A count, then that many page numbers."""
    (count,) = _NUMBER.unpack_from(array)
    return struct.unpack_from(f"<{count}Q", array, _NUMBER.size)


def _read(file: BinaryIO, meta: _Meta, place: int, size: int) -> bytes:
    if place > meta.page_bytes * meta.last_page + size:
        raise ValueError(f"byte {place} lies beyond the last page")
    file.seek(place)
    content = file.read(size)
    if len(content) < size:
        raise ValueError(f"the file ends before byte {place + size}")
    return content
