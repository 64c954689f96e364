"""`python -m tests.clusters.stopping serve ...`: a pbserver that stops itself once, in the middle of a commit.

It is stopped (SIGSTOP) when it is about to write index rows that hold MARK. On stores without transactions the commit
has happened by then, for its heads are moved before its index rows are written; on the others it is that one write.
"""

import signal
import threading
from collections.abc import Sequence
from typing import Any

from adapters import build
from adapters.contract import Operation, OrderedStore, Rows, Table
from pbserver import __main__ as pbserver

MARK = b"stop before this is indexed"


def _stops_once(store: OrderedStore) -> OrderedStore:
    write = store.write
    stops = [signal.SIGSTOP]

    def stop_and_write(operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        if stops and _indexes_the_mark(operations, rows):
            signal.pthread_kill(threading.get_ident(), stops.pop())  # this thread goes no further, not even one step
        write(operations, rows=rows, deadline=deadline)

    store.write = stop_and_write  # type: ignore[method-assign]
    return store


def _indexes_the_mark(operations: Sequence[Operation], rows: Sequence[Rows]) -> bool:
    keys = [each.address.key for each in operations if each.address.table is Table.INDEXES]
    keys += [key for each in rows if each.table is Table.INDEXES for key in each.values]
    return any(MARK in key for key in keys)


def main() -> None:
    """As the console script, but for its store."""
    opened = build.open_store

    def open_store(url: str, **options: Any) -> OrderedStore:
        return _stops_once(opened(url, **options))

    build.open_store = open_store
    pbserver.main()


if __name__ == "__main__":
    main()
