"""Threads whose calls to a store happen in an order drawn by a seed: races that can be repeated."""

import threading
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from adapters.contract import Address, KeyRange, Operation, Row, Rows, Table


class Turns:
    """Lets one of several threads go on at a time, drawn by a seed, once all of them are about to call the store."""

    def __init__(self, seed: int, threads: int) -> None:
        self._random = Random(seed)  # noqa: S311 - an order
        self._live = threads
        self._waiting: set[str] = set()
        self._turn: str | None = None
        self._changed = threading.Condition()

    def wait(self) -> None:
        me = threading.current_thread().name
        with self._changed:
            self._waiting.add(me)
            self._draw()
            assert self._changed.wait_for(lambda: self._turn == me, 30)
            self._turn = None
            self._waiting.remove(me)

    def leave(self) -> None:
        with self._changed:
            self._live -= 1
            self._draw()

    def _draw(self) -> None:
        if self._turn is None and self._waiting and len(self._waiting) == self._live:
            self._turn = self._random.choice(sorted(self._waiting))
            self._changed.notify_all()


class Scheduled:
    """A store whose calls happen in the order that Turns draws: a layer over it is interrupted between any two."""

    def __init__(self, store: Any, turns: Turns) -> None:
        self._store = store
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        self._turns.wait()
        values: list[bytes | None] = self._store.read(addresses, deadline=deadline, settle=settle)
        return values

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        self._turns.wait()
        self._store.write(operations, rows=rows, deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        self._turns.wait()
        rows: list[Row] = self._store.scan(table, scope, keys, limit=limit, reverse=reverse, deadline=deadline)
        return rows


def interleaved(turns: Turns, clients: Sequence[Callable[[], None]]) -> None:
    """Runs the clients, as many as `turns` was made for, to their ends. Raises what the first of them raised."""
    failures: list[BaseException] = []

    def run(client: Callable[[], None]) -> None:
        try:
            client()
        except BaseException as failure:  # noqa: BLE001 - shown by the test
            failures.append(failure)
        finally:
            turns.leave()

    threads = [threading.Thread(target=run, args=(client,), name=f"client {n}") for n, client in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if failures:
        raise failures[0]
