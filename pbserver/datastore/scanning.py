"""Whole ranges of rows, read page by page: each page as it stands when it is read."""

import time
from collections.abc import Iterator

from adapters.contract import KeyRange, Reader, Row, Table, after_prefix
from pbserver.datastore.tables import META_SCOPE, meta_address

_PAGE = 500
_WHOLE = KeyRange()
_PAGE_SECONDS = 60.0


def every_row(
    reader: Reader, table: Table, scope: bytes, keys: KeyRange = _WHOLE, *, deadline: float | None = None
) -> Iterator[Row]:
    """All rows of a range, ascending. Without a deadline for the whole of it, each page has one of its own."""
    while True:
        until = time.monotonic() + _PAGE_SECONDS if deadline is None else deadline
        page = reader.scan(table, scope, keys, limit=_PAGE, deadline=until)
        yield from page
        if len(page) < _PAGE:
            return
        keys = KeyRange(page[-1][0] + b"\x00", keys.stop)


def meta_rows(reader: Reader, name: str, *, deadline: float | None = None) -> Iterator[Row]:
    """The rows of table `meta` under a name: what stands behind the name (a project, say), and the values."""
    prefix = meta_address(name).key
    keys = KeyRange(prefix, after_prefix(prefix))
    for key, value in every_row(reader, Table.META, META_SCOPE, keys, deadline=deadline):
        yield key[len(prefix) :], value
