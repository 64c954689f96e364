"""After a random mix of every kind of write, every query answers what the entities say, and nothing else."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from google.appengine.api import datastore, datastore_errors
from google.appengine.ext import ndb
from google.appengine.ext.ndb import metadata

from tests.e2e.sdk import in_threads

pytestmark = pytest.mark.usefixtures("sdk")


class Cell(ndb.Model):
    rank = ndb.IntegerProperty()
    color = ndb.StringProperty()
    sizes = ndb.IntegerProperty(repeated=True)
    note = ndb.TextProperty()


COLORS = ["", "blue", "red", "rot\x00", "é"]
Model = dict[Any, Any]  #: what must be stored, by key


class Player:
    """Writes at random, and remembers what must be there now."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.stored: Model = {}

    def key(self) -> Any:
        group = ndb.Key("Grid", self.random.choice("abc"))
        name: Any = self.random.choice([f"c{self.random.randrange(12)}", self.random.randrange(1, 12)])
        above = self.random.choice([group, group, ndb.Key("Row", 1, parent=group), None])
        return ndb.Key(Cell, name, parent=above)

    def cell(self) -> Any:
        return Cell(
            key=self.key(),
            rank=self.random.choice([None, *range(-3, 6)]),
            color=self.random.choice(COLORS),
            sizes=self.random.choices(range(5), k=self.random.randrange(4)),
            note="n" * self.random.randrange(50),
        )

    def put(self) -> None:
        cells = [self.cell() for _ in range(self.random.choice([1, 1, 4]))]
        ndb.put_multi(list({cell.key: cell for cell in cells}.values()))
        self.stored.update({cell.key: cell for cell in cells})

    def delete(self) -> None:
        keys = [self.key() for _ in range(self.random.choice([1, 3]))]
        ndb.delete_multi(keys)
        for key in keys:
            self.stored.pop(key, None)

    def commit(self) -> None:
        before = dict(self.stored)
        writes = self.random.choices([self.put, self.delete], weights=[2, 1], k=4)

        def work(*, fail: bool) -> None:
            self.stored = dict(before)
            for write in writes:
                write()
            if fail:
                raise ndb.Rollback

        fail = self.random.random() < 0.4
        ndb.transaction(lambda: work(fail=fail), xg=True)
        if fail:
            self.stored = before

    def conflict(self) -> None:
        """A transaction that must fail."""
        guard = ndb.Key(Cell, "guard")
        before = dict(self.stored)

        def work() -> None:
            guard.get()
            self.put()
            in_threads(1, lambda _: Cell(key=guard, rank=0, color="red").put(), [None])

        with pytest.raises(datastore_errors.TransactionFailedError):
            ndb.transaction(work, xg=True, retries=0)
        self.stored = {**before, guard: Cell(key=guard, rank=0, color="red")}

    def play(self, steps: int) -> None:
        moves = [self.put, self.delete, self.commit, self.conflict]
        for move in self.random.choices(moves, weights=[10, 4, 4, 1], k=steps):
            move()


def value_of(cell: Any) -> Any:
    """Sorts as the Datastore does: None first."""
    return (cell.rank is not None, cell.rank or 0)


def compare(
    stored: Model, query: Any, wanted: Callable[[Any], bool], value: Callable[[Any], Any] = lambda _: ()
) -> None:
    chosen = sorted((cell for cell in stored.values() if wanted(cell)), key=lambda cell: (value(cell), cell.key))
    keys = [cell.key for cell in chosen]
    assert query.fetch(keys_only=True) == keys, query
    assert [_data(cell) for cell in query.fetch()] == [_data(cell) for cell in chosen], query
    assert query.count() == len(keys), query


def _data(cell: Any) -> Any:
    return (cell.key, cell.rank, cell.color, cell.sizes, cell.note)


def check_one_property(stored: Model) -> None:
    compare(stored, Cell.query(), lambda _: True)
    compare(stored, Cell.query().order(Cell.rank), lambda _: True, value_of)
    for rank in (None, *range(-4, 7)):
        compare(stored, Cell.query(Cell.rank == rank), lambda cell, rank=rank: cell.rank == rank)
    for rank in (-1, 2):
        compare(
            stored,
            Cell.query(Cell.rank > rank).order(Cell.rank),
            lambda cell, rank=rank: cell.rank is not None and cell.rank > rank,
            value_of,
        )
    for color in [*COLORS, "rot", "none"]:
        compare(stored, Cell.query(Cell.color == color), lambda cell, color=color: cell.color == color)


def check_repeated(stored: Model) -> None:
    for size in range(6):
        compare(stored, Cell.query(Cell.sizes == size), lambda cell, size=size: size in cell.sizes)
    for least in (0, 3):
        compare(
            stored,
            Cell.query(Cell.sizes >= least).order(Cell.sizes),
            lambda cell, least=least: any(size >= least for size in cell.sizes),
            lambda cell, least=least: min(size for size in cell.sizes if size >= least),
        )
    compare(stored, Cell.query(Cell.sizes == 1, Cell.sizes == 2), lambda cell: {1, 2} <= set(cell.sizes))


def check_several(stored: Model) -> None:
    for color in COLORS:
        query = Cell.query(Cell.color == color).order(Cell.rank)
        compare(stored, query, lambda cell, color=color: cell.color == color, value_of)
    compare(stored, Cell.query(Cell.color == "red", Cell.rank == 1), lambda c: (c.color, c.rank) == ("red", 1))
    for name in "abc":
        group = ndb.Key("Grid", name)
        compare(stored, Cell.query(ancestor=group), lambda cell, group=group: cell.key.root() == group)
        query = Cell.query(Cell.rank < 3, ancestor=group).order(Cell.rank)
        compare(
            stored,
            query,
            lambda cell, group=group: cell.key.root() == group and (cell.rank is None or cell.rank < 3),
            value_of,
        )


def check_entities(stored: Model) -> None:
    keys = sorted(stored)
    assert [_data(cell) for cell in ndb.get_multi(keys)] == [_data(stored[key]) for key in keys]
    assert ndb.Query().fetch(keys_only=True) == keys
    assert datastore.Query().Count() == len(keys)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_query_agrees_with_the_entities_after_a_random_mix_of_writes(seed: int) -> None:
    player = Player(seed)
    player.play(80)
    for check in (check_entities, check_one_property, check_repeated, check_several):
        check(player.stored)


def test_nothing_is_found_once_everything_is_deleted() -> None:
    player = Player(3)
    player.play(60)
    ndb.delete_multi(list(player.stored))
    for check in (check_entities, check_one_property, check_repeated, check_several):
        check({})


def test_the_metadata_agrees_with_the_entities_after_a_random_mix_of_writes() -> None:
    player = Player(4)
    player.play(80)
    assert metadata.get_kinds() == ["Cell"]
    kinds = {"rank": "INT64", "color": "STRING", "sizes": "INT64"}
    nulls = {"NULL"} if any(cell.rank is None for cell in player.stored.values()) else set()
    found = {name: set(each) for name, each in metadata.get_representations_of_kind("Cell").items()}
    assert found == {name: {kind} | (nulls if name == "rank" else set()) for name, kind in kinds.items()}
    ndb.delete_multi(list(player.stored))
    assert metadata.get_kinds() == []
    assert metadata.get_representations_of_kind("Cell") == {}


def test_clients_that_write_at_once_leave_indexes_that_agree_with_the_entities() -> None:
    """Eight clients in one key space: whatever won, entity and index rows are of the same write."""

    def play(seed: int) -> None:
        player = Player(seed)
        for move in player.random.choices([player.put, player.delete], weights=[3, 1], k=25):
            move()

    in_threads(8, play, range(100, 108))
    stored = {cell.key: cell for cell in Cell.query()}
    assert stored
    for check in (check_entities, check_one_property, check_repeated, check_several):
        check(stored)
