"""Gets on a store that reads each row on its own: what an answer told of is never missed, however reads are ordered."""

from collections.abc import Callable, Sequence
from typing import Any

from adapters.build import open_store
from adapters.contract import Address, OrderedStore
from pbserver.datastore import entities
from pbserver.datastore.core import Datastore
from pbserver.datastore.mutations import Mutation
from tests.unit.building import FAR, entity, key, reference
from tests.unit.test_unfinished_commits import Postponed

A = reference((b"K", 1))


class RowsBeforeHeads:
    """A store that reads rows in reverse, so heads last; `meanwhile` happens once, before the last of several."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = store
        self.reads = 0
        self.meanwhile: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        self.reads += 1
        found: list[bytes | None] = []
        for address in reversed(addresses):
            if self.meanwhile and len(found) == len(addresses) - 1 > 0:
                happen, self.meanwhile = self.meanwhile, None
                happen()
            found += self._store.read([address], deadline=deadline, settle=settle)
        return found[::-1]


def opened() -> OrderedStore:
    store = open_store("weak:?atomicity=row&versions=yes")
    Datastore(store).prepare(deadline=FAR)
    return store


def put(server: Datastore, number: int) -> None:
    made = entity(A, p=number)
    server.write([Mutation(made.key, made)], None, deadline=FAR)


def got(server: Datastore) -> int | None:
    (stored,) = server.get([key((b"K", 1))], None, deadline=FAR)
    return None if stored is None else entities.parse(stored).property[0].value.int64_value


def test_a_commit_whose_rows_are_written_between_row_and_head_is_seen() -> None:
    store = opened()
    put(Datastore(store), 1)
    beside, slow = Postponed(), RowsBeforeHeads(store)
    put(Datastore(store, early=True, beside=beside), 2)  # acknowledged, its row is not written yet
    slow.meanwhile = beside.do
    assert got(Datastore(slow)) == 2
    assert slow.meanwhile is None


def test_a_group_that_is_remembered_costs_one_read_and_another_two() -> None:
    store = RowsBeforeHeads(opened())
    server, other = Datastore(store), Datastore(store)

    def reads(asked: Datastore, expected: int | None) -> int:
        before = store.reads
        assert got(asked) == expected
        return store.reads - before

    assert reads(server, None) == 1  # no head: no commit whose rows could be missed
    put(server, 1)
    assert [reads(server, 1), reads(other, 1), reads(other, 1)] == [1, 2, 1]
    put(server, 2)
    assert [reads(other, 2), reads(other, 2)] == [2, 1]


def test_what_is_remembered_does_not_hide_a_commit_that_came_later() -> None:
    store = opened()
    slow = RowsBeforeHeads(store)
    server, other = Datastore(slow), Datastore(store)
    put(server, 1)
    assert got(server) == 1
    slow.meanwhile = lambda: put(other, 2)
    assert got(server) == 2  # either would do: the put began after the get
    put(other, 3)
    assert got(server) == 3
