"""A process that writes to one LMDB path until it is told to stop; started by test_lmdb_processes.

Arguments: URL, name, mode. Prints a line for each acknowledged write, so that a killed writer's promises are known.
"""

import sys
import time

from adapters.build import open_store
from adapters.contract import ABSENT, Address, OrderedStore, Table, Write
from adapters.errors import Conflict

COUNTER = Address(Table.META, b"shared\x00", b"", b"counter")


def increment(store: OrderedStore) -> int:
    """Adds one to the counter that all processes share; its new value."""
    while True:
        deadline = time.monotonic() + 30
        (current,) = store.read([COUNTER], deadline=deadline)
        value = int(current or b"0") + 1
        try:
            store.write([Write(COUNTER, b"%d" % value, current or ABSENT)], deadline=deadline)
        except Conflict:
            continue
        return value


def main() -> None:
    url, name, mode = sys.argv[1:]
    store = open_store(url)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()  # all begin together
    limit = int(sys.stdin.readline())
    for number in range(limit):
        if mode == "count":
            increment(store)
        else:
            size = 100_000 if mode == "grow" else 100
            row = Address(Table.GROUPS, name.encode() + b"\x00", b"", b"%08d" % number)
            twin = Address(Table.INDEXES, name.encode() + b"\x00", b"", b"%08d" % number)
            value = b"%08d" % number + b"v" * size
            store.write([Write(row, value), Write(twin, b"%08d" % number)], deadline=time.monotonic() + 30)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
    store.close()


if __name__ == "__main__":
    main()
