"""The layers that rows were written through, recorded beside them: rows bear their marks, and mean something else, or
nothing, to others.
"""

import time

from adapters.contract import ABSENT, Address, PointStore, Table, Write
from adapters.errors import Applied, Conflict, Corrupt, StoreError

RECORD = Address(Table.LONGKEYS, b"layout", b"", b"layers")
_SECONDS = 60.0


class Record:
    """What is to be checked before anything is written, and after everything was dropped."""

    def __init__(self, store: PointStore) -> None:
        """`store`: the outermost layer. The record stands below the layers whose marks rows bear (those that have a
        `layout`), so that any other set of them finds it.
        """
        marks = []
        self._below = each = store
        while (inner := getattr(each, "inner", None)) is not None:
            layout: str | None = getattr(each, "layout", None)
            if layout is not None:
                marks.append(layout)
                self._below = inner
            each = inner
        self._wanted = ", ".join(reversed(marks)) or "no layers"

    def check(self) -> None:
        """Raises Corrupt when the rows there were written through other layers; makes the record if there is none."""
        deadline = time.monotonic() + _SECONDS
        while (found := self._below.read([RECORD], deadline=deadline, settle=True)[0]) is None:
            try:
                self._below.write([Write(RECORD, self._wanted.encode(), ABSENT)], deadline=deadline)
            except Conflict:
                continue  # somebody else opened it first
            except StoreError as error:
                if error.applied is Applied.NO or time.monotonic() > deadline:
                    raise
        if found != self._wanted.encode():
            raise Corrupt(
                f"the rows there were written through {found.decode(errors='replace')}; this would open them with "
                f"{self._wanted}: open them with what they were written with, or load a dump into an empty store"
            )
