"""Files that were damaged while nobody served them: refused in one line and left alone, or told where they are met.

LMDB keeps no checksums. It recognizes damage to its two meta pages, a page of another type than its place asks for, and
page numbers beyond the end; a branch or leaf whose bytes are merely others is taken for what it says, and may lead
anywhere, so pages of random bytes are tried only where LMDB looks first. What it cannot see may still be seen above
it: an entity that does not parse, a row that leads nowhere.
"""

import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto
from tests.e2e.server import Server
from tests.e2e.wire import APP, Wire, assert_application_error, key, put_request
from tests.faults.acknowledged import KIND, load
from tests.faults.program import ended, refused_start, serving, verified

ENTITIES = 300
VICTIM = 150
PAGE = 4096
_META_HEADER = 16
_MAIN_ROOT = _META_HEADER + 24 + 48 + 40  # magic, version, address, map size; then two trees of 48 bytes, root last
_LAST_PAGE = _META_HEADER + 24 + 2 * 48

_chance = random.Random(7)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was left in good order."""
    directory = tmp_path_factory.mktemp("original")
    with Server(directory, f"lmdb:{directory / 'store'}", workers=2) as server, Wire(server.port) as wire:
        for number in range(1, ENTITIES + 1):
            wire.put(load(key(KIND, number), number))
        server.kill()
    return directory / "store"


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store", ignore=shutil.ignore_patterns("volatile")))


@pytest.fixture
def served(store: Path, tmp_path: Path) -> Iterator[Callable[[], Server]]:
    """Starts a server on the store, after it was damaged."""
    server = Server(tmp_path, f"lmdb:{store}", workers=2)

    def start() -> Server:
        server.start()
        return server

    try:
        yield start
    finally:
        server.kill()


def overwrite(file: Path, place: int, content: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(content)


def newest(file: Path, field: int) -> int:
    """A number in the meta page of the last commit."""
    pages = [file.read_bytes()[start : start + PAGE] for start in (0, PAGE)]
    meta = max(pages, key=lambda page: struct.unpack_from("<Q", page, _LAST_PAGE + 8))
    return int(struct.unpack_from("<Q", meta, field)[0])


def first_meta(file: Path) -> None:
    overwrite(file, 0, _chance.randbytes(PAGE))


def second_meta(file: Path) -> None:
    overwrite(file, PAGE, _chance.randbytes(PAGE))


def both_metas(file: Path) -> None:
    overwrite(file, 0, _chance.randbytes(2 * PAGE))


def garbage(file: Path) -> None:
    file.write_bytes(_chance.randbytes(file.stat().st_size))


def not_even_a_page(file: Path) -> None:
    os.truncate(file, 100)


def one_page(file: Path) -> None:
    os.truncate(file, PAGE)


def zeroed_root(file: Path) -> None:
    overwrite(file, newest(file, _MAIN_ROOT) * PAGE, bytes(PAGE))


@pytest.mark.parametrize(
    "damage",
    [first_meta, second_meta, both_metas, garbage, not_even_a_page, one_page, zeroed_root],
)
def test_a_damaged_file_is_refused_in_one_line_and_left_alone(store: Path, damage: Callable[[Path], None]) -> None:
    file = store / "data.mdb"
    damage(file)
    damaged = file.read_bytes()
    line = refused_start(store)
    assert line.startswith(f"pbserver: {'the' if damage is zeroed_root else 'cannot open the'} store lmdb:{store}")
    assert "the file is damaged or not LMDB's" in line
    verification = verified(store)
    assert verification.returncode == 1
    assert "the file is damaged or not LMDB's" in verification.stderr
    assert len(verification.stderr.splitlines()) == 1
    assert file.read_bytes() == damaged


def half_the_file(file: Path) -> None:
    os.truncate(file, file.stat().st_size // PAGE // 2 * PAGE)


def only_the_metas(file: Path) -> None:
    os.truncate(file, 2 * PAGE)


def without_its_last_page(file: Path) -> None:
    os.truncate(file, newest(file, _LAST_PAGE) * PAGE)


@pytest.mark.parametrize("damage", [half_the_file, only_the_metas])
def test_a_truncated_file_is_not_served_and_left_alone(store: Path, damage: Callable[[Path], None]) -> None:
    damage(store / "data.mdb")
    damaged = (store / "data.mdb").read_bytes()
    assert ended(*serving(store)).returncode == 1
    assert (store / "data.mdb").read_bytes() == damaged


@pytest.mark.parametrize("damage", [half_the_file, only_the_metas, without_its_last_page])
def test_a_truncated_file_is_refused_in_words(store: Path, damage: Callable[[Path], None]) -> None:
    damage(store / "data.mdb")
    assert verified(store).returncode == 1
    assert "the file is damaged" in refused_start(store)


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def deleted(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize(("damage", "found"), [(emptied, "empty"), (deleted, "missing")])
def test_a_store_that_lost_its_data_is_not_taken_for_a_new_one(
    store: Path, damage: Callable[[Path], None], found: str
) -> None:
    damage(store / "data.mdb")
    verification = verified(store)
    assert verification.returncode == 1
    for line in (verification.stderr, refused_start(store)):
        assert f"the file is damaged: data.mdb is {found}, but synced.lock beside it says" in line
    if damage is deleted:
        assert not (store / "data.mdb").exists()
    else:
        assert (store / "data.mdb").stat().st_size == 0


def test_a_store_of_before_there_were_marks_is_opened_and_known_by_its_volatile_part(store: Path) -> None:
    (store / "synced.lock").unlink()
    (store / "volatile").mkdir()
    assert verified(store).returncode == 0
    (store / "synced.lock").unlink()
    emptied(store / "data.mdb")
    assert "data.mdb is empty, but volatile beside it says" in refused_start(store)


def test_an_unreadable_entity_is_told_when_it_is_met_and_found_by_verify(
    store: Path, served: Callable[[], Server]
) -> None:
    scribble_over(store / "data.mdb", load(key(KIND, VICTIM), VICTIM))
    with Wire(served().port) as wire:
        for call, request in (
            ("Get", v3.GetRequest(key=[key(KIND, VICTIM)])),
            ("Put", put_request(load(key(KIND, VICTIM), 1))),
            ("Delete", v3.DeleteRequest(key=[key(KIND, VICTIM)])),
        ):
            reply = wire.reply(call, request)
            if call != "Get":  # a get splices stored bytes; what they mean, the client finds out
                assert_application_error(reply, v3.Error.INTERNAL_ERROR, "run a verification of the store")
        assert len(wire.query(kind=KIND, keys_only=True, count=1000)) == ENTITIES
        wire.put(load(key(KIND, VICTIM + 1), 7))
        verification = verified(store)  # beside the server
    assert verification.returncode == 1
    lines = [line for line in verification.stdout.splitlines() if not line.startswith("note: ")]
    assert lines[0].startswith(f"unreadable entity: {APP.decode()} {KIND.decode()}:{VICTIM}")
    assert lines[1:] == [f"{ENTITIES} entities, {4 * ENTITIES} index rows: 1 problems"]


def scribble_over(file: Path, proto: EntityProto) -> None:
    """Writes over the beginning of a stored entity, in every page that holds or held it."""
    stored = proto.SerializeToString()
    content = file.read_bytes()
    place = content.find(stored)
    assert place > 0
    while place > 0:
        overwrite(file, place, b"\xff" * 10)
        place = content.find(stored, place + 1)


def lose_its_pages(file: Path, proto: EntityProto) -> None:
    """Zeroes every page that holds or held a stored entity, as a disk does that loses a write."""
    stored = proto.SerializeToString()
    content = file.read_bytes()
    place = content.find(stored)
    assert place > 0
    while place > 0:
        overwrite(file, place // PAGE * PAGE, bytes(PAGE))
        place = content.find(stored, place + 1)


def test_a_lost_page_is_told_when_it_is_met(store: Path, served: Callable[[], Server]) -> None:
    lose_its_pages(store / "data.mdb", load(key(KIND, VICTIM), VICTIM))
    with Wire(served().port) as wire:
        for call, request in (
            ("Get", v3.GetRequest(key=[key(KIND, VICTIM)])),
            ("Put", put_request(load(key(KIND, VICTIM), 1))),
        ):
            assert_application_error(wire.reply(call, request), v3.Error.INTERNAL_ERROR, "the file is damaged")
        assert wire.get(key(KIND, 1)) == [load(key(KIND, 1), 1)]


def test_a_lost_page_is_told_by_queries_and_verify(store: Path, served: Callable[[], Server]) -> None:
    lose_its_pages(store / "data.mdb", load(key(KIND, VICTIM), VICTIM))
    verification = verified(store)
    assert verification.returncode == 1
    assert "the file is damaged" in verification.stderr
    assert len(verification.stderr.splitlines()) == 1
    with Wire(served().port) as wire:
        reply = wire.reply("RunQuery", v3.Query(app=APP, kind=KIND, count=1000))
        assert_application_error(reply, v3.Error.INTERNAL_ERROR, "the file is damaged")
