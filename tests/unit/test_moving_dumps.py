"""A dump holds everything, is the same file for the same data, and is refused when it is not what was written."""

import stat
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from adapters.build import open_store
from adapters.contract import OrderedStore
from adapters.errors import Unavailable
from pbserver.moving import dump_file
from pbserver.moving.arriving import Arrival
from pbserver.moving.dump_file import DumpFile
from pbserver.moving.records import START, CannotMove, Place, Record
from tests.unit.indexed_world import World
from tests.unit.moved_worlds import IDENTITY, STORES, Ending, assert_right, copied, filled, of, opened


@pytest.fixture
def source() -> OrderedStore:
    store = open_store("memory:")
    filled(store)
    return store


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("url", STORES)
def test_a_dump_holds_everything(url: str, packed: bool, tmp_path: Path, source: OrderedStore) -> None:
    trailer = dump_file.write(tmp_path / "dump", of(source).records(), packed=packed)
    with opened(url, tmp_path / "target") as target:
        assert copied(DumpFile(tmp_path / "dump"), target).entities == trailer.entities
        assert_right(source, target)


def test_a_load_goes_on_after_an_interruption(tmp_path: Path, source: OrderedStore) -> None:
    dump_file.write(tmp_path / "dump", of(source).records())
    file = DumpFile(tmp_path / "dump")
    for at in range(1, 60, 7):
        target = open_store("memory:")
        with closing(Arrival(target, IDENTITY)) as arrival, pytest.raises(Unavailable):
            arrival.take(Ending(file, at % 40))
        assert copied(file, target).entities == file.trailer.entities
        assert_right(source, target)


def test_two_dumps_of_one_store_are_the_same_file_and_only_the_owners(
    tmp_path: Path, source: OrderedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    dump_file.write(first, of(source).records())
    monkeypatch.setattr(time, "time", lambda: 1e9)
    dump_file.write(second, of(source).records())
    assert first.read_bytes() == second.read_bytes()
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    with pytest.raises(CannotMove, match="first is there already"):
        dump_file.write(first, of(source).records())


def test_large_stores_are_dumped_block_by_block(
    tmp_path: Path, source: OrderedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_file, "_BLOCK_BYTES", 500)
    dump_file.write(tmp_path / "dump", of(source).records(), packed=False)
    assert [*DumpFile(tmp_path / "dump").records()] == [*of(source).records()]


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_with_any_byte_changed_or_cut_off_is_refused(tmp_path: Path, packed: bool) -> None:
    world = World()
    world.fill(1)
    dump_file.write(tmp_path / "dump", of(world.store).records(), packed=packed)
    whole = (tmp_path / "dump").read_bytes()
    other = tmp_path / "other"
    for at in range(len(whole)):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]):
            other.write_bytes(damaged)
            with pytest.raises(CannotMove, match=r"^.*/other (is|ends) [^\n]*$"):
                DumpFile(other)
    other.write_bytes(whole + b"\x00")
    with pytest.raises(CannotMove, match="its trailer is missing"):
        DumpFile(other)


def test_a_file_that_was_made_with_right_sums_and_wrong_contents_is_refused(tmp_path: Path) -> None:
    class Backwards:
        def records(self, after: Place = START) -> Iterator[Record]:
            del after
            yield from reversed([*of(world.store).records()][1:-1])

    world = World()
    world.fill(3)
    dump_file.write(tmp_path / "dump", Backwards().records())
    with pytest.raises(CannotMove, match="its records are not in order"):
        [*DumpFile(tmp_path / "dump").records()]


@pytest.mark.parametrize("problem", [CannotMove("no"), OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_dump_that_fails_leaves_nothing(tmp_path: Path, source: OrderedStore, problem: BaseException) -> None:
    def failing() -> Iterator[Record]:
        yield from [*of(source).records()][:20]
        assert len([*tmp_path.iterdir()]) == 1
        raise problem

    with pytest.raises((CannotMove, KeyboardInterrupt)):
        dump_file.write(tmp_path / "dump", failing())
    assert [*tmp_path.iterdir()] == []
