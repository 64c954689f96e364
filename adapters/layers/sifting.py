"""Scans of layers that leave out some of the rows they find below."""

from collections.abc import Callable

from adapters.contract import KeyRange, Row


def sifted_scan(
    fetch: Callable[[KeyRange, int], list[Row]],
    sift: Callable[[list[Row]], list[Row]],
    keys: KeyRange,
    *,
    limit: int,
    reverse: bool,
) -> list[Row]:
    """Scans on until `limit` rows have passed `sift` or the range is exhausted: fewer rows always mean that it is."""
    rows: list[Row] = []
    while len(rows) < limit:
        asked = limit - len(rows)
        found = fetch(keys, asked)
        rows += sift(found)
        if len(found) < asked:
            break
        last = found[-1][0]
        keys = KeyRange(keys.start, last) if reverse else KeyRange(last + b"\x00", keys.stop)
    return rows
