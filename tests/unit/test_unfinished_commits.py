"""Commits acknowledged at their commit point, and what servers that died have left: others see and finish it."""

from collections.abc import Callable, Sequence

import pytest

from adapters.build import open_store
from adapters.contract import KeyRange, OrderedStore, Row, Table
from pbserver.datastore import heads, notes
from pbserver.datastore.core import Datastore
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.execute import Progress
from pbserver.datastore.groups import InTurn, Result
from pbserver.datastore.heads import State
from pbserver.datastore.keys import encode_kind
from pbserver.datastore.mutations import Mutation
from pbserver.datastore.queries import Query, normalize
from pbserver.datastore.tables import META_SCOPE, head_address
from tests.unit.building import APP, FAR, entity, key, reference

STORES = ["weak:?atomicity=row&versions=yes", "weak:?atomicity=scope&versions=yes"]
A, B = reference((b"K", 1)), reference((b"K", 2))


class Postponed:
    """pbserver.datastore.groups.Beside: what is left for later waits, and is lost when the server dies."""

    def __init__(self) -> None:
        self.left: list[Callable[[], object]] = []
        self.at_once = InTurn().at_once

    def later(self, work: Callable[[], object]) -> bool:
        self.left.append(work)
        return True

    def do(self) -> None:
        while self.left:
            self.left.pop(0)()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> OrderedStore:
    opened = open_store(request.param)
    Datastore(opened).prepare(deadline=FAR)
    return opened


def server(store: OrderedStore, beside: Postponed | None = None) -> Datastore:
    return Datastore(store, early=True, beside=beside)


def put(datastore: Datastore, *references: object, number: int) -> None:
    made = [entity(each, p=number) for each in references]  # type: ignore[arg-type]
    datastore.write([Mutation(each.key, each) for each in made], None, deadline=FAR)


def found(datastore: Datastore, ancestor: bool) -> int:
    asked = Query(
        partition=key((b"K", 1)).partition,
        kind=encode_kind(b"K"),
        ancestor=key((b"K", 1)) if ancestor else None,
        filters=(),
        orders=(),
    )
    return datastore.count(normalize(asked), Progress(None, 0, None), None, deadline=FAR)


def state(store: OrderedStore, number: int) -> State:
    return heads.decode(store.read([head_address(key((b"K", number)).group)], deadline=FAR)[0]).state


def unfinished(store: OrderedStore) -> list[Row]:
    """All notes there are."""
    servers = store.scan(Table.META, META_SCOPE, KeyRange(b"server", b"serves"), limit=100, deadline=FAR)
    names = [row[0][len(b"server") :].strip(b"\x00") for row in servers]
    return [row for name in names for row in store.scan(Table.UNFINISHED, name, KeyRange(), limit=100, deadline=FAR)]


def test_gets_and_ancestor_queries_see_what_is_acknowledged_and_global_queries_follow(store: OrderedStore) -> None:
    put(server(store), B, number=1)  # so that there is something to find
    beside = Postponed()
    hasty, other = server(store, beside), server(store)
    put(hasty, A, number=1)
    assert state(store, 1) is State.COMMITTED
    assert found(other, ancestor=False) == 1
    assert other.get([key((b"K", 1))], None, deadline=FAR) != [None]
    assert found(other, ancestor=True) == 1
    beside.do()
    assert found(other, ancestor=False) == 2
    assert state(store, 1) is State.APPLIED


def test_several_groups_acknowledged_together_are_got_together(store: OrderedStore) -> None:
    beside = Postponed()
    hasty, other = server(store, beside), server(store)
    handle = hasty.transactions.begin(APP, cross_group=True, read_only=False, deadline=FAR)
    made = [entity(A, p=1), entity(B, p=1)]
    hasty.write([Mutation(each.key, each) for each in made], handle, deadline=FAR)
    hasty.transactions.commit(handle, deadline=FAR)
    assert None not in other.get([key((b"K", 1)), key((b"K", 2))], None, deadline=FAR)


def test_what_a_dead_server_left_is_finished_by_another(store: OrderedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "_AT_ONCE", 3)  # several pages
    dying = server(store, Postponed())
    references: Sequence[object] = [reference((b"K", number)) for number in range(1, 9)]
    put(dying, *references, number=1)
    assert len(unfinished(store)) == 8
    other = server(store)
    other.tend(deadline=FAR)
    assert found(other, ancestor=False) == 0  # it may still be alive
    monkeypatch.setattr(notes, "DEAD_SECONDS", 0.0)
    other.tend(deadline=FAR)
    assert found(other, ancestor=False) == 8
    assert {state(store, number) for number in range(1, 9)} == {State.APPLIED}
    assert unfinished(store) == []


def test_a_server_that_only_slept_goes_on_with_notes_anew(store: OrderedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = server(store, Postponed())
    put(sleeper, A, number=1)
    monkeypatch.setattr(notes, "DEAD_SECONDS", 0.0)
    other = server(store)
    other.tend(deadline=FAR)
    other.tend(deadline=FAR)
    assert unfinished(store) == []
    monkeypatch.setattr(notes, "LEASE_SECONDS", -1.0)
    monkeypatch.setattr(notes.Notes, "missing", _lease_of_one_look(notes.Notes.missing, monkeypatch))
    put(sleeper, A, number=2)
    assert len(unfinished(store)) == 1
    assert state(store, 1) is State.COMMITTED


def _lease_of_one_look(missing: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The lease has lapsed when the server is asked first, and not any more when it has noted."""

    def ask(self: notes.Notes, groups: Sequence[bytes]) -> Result:
        asked = missing(self, groups)
        monkeypatch.setattr(notes, "LEASE_SECONDS", 30.0)
        return asked

    return ask


def test_groups_that_are_idle_are_finished_and_no_longer_noted(
    store: OrderedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    datastore = server(store, Postponed())
    put(datastore, A, B, number=1)
    datastore.tend(deadline=FAR)
    assert len(unfinished(store)) == 2
    monkeypatch.setattr(notes, "IDLE_SECONDS", -1.0)
    datastore.tend(deadline=FAR)
    assert unfinished(store) == []
    assert {state(store, number) for number in (1, 2)} == {State.APPLIED}


def test_a_refusal_leaves_no_commit_behind(store: OrderedStore) -> None:
    datastore = server(store, Postponed())
    put(datastore, A, number=1)
    handle = datastore.transactions.begin(APP, cross_group=False, read_only=False, deadline=FAR)
    taken = entity(A, p=2)
    datastore.write([Mutation(taken.key, taken, insert=True)], handle, deadline=FAR)
    with pytest.raises(BadRequest, match="already in use"):
        datastore.transactions.commit(handle, deadline=FAR)
