"""`pbserver copy`, `dump` and `load` on LMDB: as an operator runs them, killed in the middle, on a full disk."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from adapters.build import open_store
from adapters.contract import OrderedStore, Write
from pbserver.__main__ import app
from pbserver.datastore import entities, keys
from pbserver.datastore.core import Datastore
from pbserver.datastore.mutations import Mutation
from pbserver.datastore.tables import meta_address
from pbserver.moving.arriving import ADDRESS, is_unfinished
from protos.dump_pb2 import Arrival
from protos.entity_pb2 import EntityProto
from tests.e2e.server import ROOT, Server, wait_until
from tests.e2e.wire import APP, Wire, blob, entity, key
from tests.faults.small_disk import small_disk

BOOKS = 200
MANY = 4_000
FAR = 1e12


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "pbserver", *map(str, arguments)]


class Outcome(NamedTuple):
    code: int
    said: str
    complained: str


def run(*arguments: object) -> Outcome:
    """In a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PBSERVER_")}
    done = subprocess.run(
        command(*arguments), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def run_here(*arguments: object) -> Outcome:
    """The same in this process, which costs less."""
    done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    return Outcome(done.exit_code, done.stdout, done.stderr)


def assert_done(done: Outcome, said: str) -> None:
    assert done == (0, said + "\n", "")


def assert_refused(refused: Outcome, reason: str) -> None:
    assert (refused.code, refused.said) == (2, "")
    assert len(refused.complained.splitlines()) == 1
    assert refused.complained.startswith("pbserver: ")
    assert reason in refused.complained


@contextmanager
def opened(url: str) -> Iterator[OrderedStore]:
    with closing(open_store(url)) as store:
        yield store


def put(url: str, protos: list[EntityProto]) -> None:
    with opened(url) as store:
        datastore = Datastore(store)
        datastore.prepare(deadline=FAR)
        made = [entities.build(keys.from_reference(each.key), each, each.SerializeToString()) for each in protos]
        for start in range(0, len(made), 500):
            datastore.write([Mutation(each.key, each) for each in made[start : start + 500]], None, deadline=FAR)


def books(count: int) -> list[EntityProto]:
    return [
        blob(entity(key(b"Book", number), shelf=number % 7, title=b"t%d" % number), b"text", os.urandom(300))
        for number in range(1, count + 1)
    ]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"lmdb:{tmp_path / 'store'}"


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"lmdb:{tmp_path / 'target'}"


def test_a_store_in_use_is_copied_and_the_copy_serves(
    production_server: Server, tmp_path: Path, url: str, target: str
) -> None:
    file = tmp_path / "index.yaml"
    file.write_text("indexes:\n- kind: Book\n  properties:\n  - name: shelf\n  - name: title\n    direction: desc\n")
    protos = books(BOOKS)
    with Wire(production_server.port) as wire:
        wire.put(*protos)
        wire.put(entity(key(b"Book", b"one", namespace=b"old"), shelf=1))
        given = wire.put(entity(key(b"Book", None), shelf=1)).key[0].path.element[0].id
        assert run_here("indexes", "apply", file, "--app", APP.decode(), "--store", url).code == 0
        assert_done(
            run("copy", "--from", url, "--to", target, "--verify"), f"copied {BOOKS + 2} entities of {APP.decode()}"
        )
        assert_refused(run_here("copy", "--from", url, "--to", target), f"holds data already, of {APP.decode()}")
    with Server(tmp_path, target, settings='[datastore]\nindexes = "strict"\n') as copy, Wire(copy.port) as wire:
        assert wire.get(*(each.key for each in protos)) == protos
        assert len(wire.query(kind=b"Book", name_space=b"old")) == 1
        assert wire.put(entity(key(b"Book", None), shelf=1)).key[0].path.element[0].id != given
        assert len(wire.query(kind=b"Book", count=1000)) == BOOKS + 2
    listed = run_here("indexes", "list", "--app", APP.decode(), "--store", target).said
    assert "serving" in listed
    assert run_here("verify", "--store", target).code == 0


def arrived(store: OrderedStore) -> int:
    """How many entities an unfinished copy has."""
    (row,) = store.read([ADDRESS], deadline=FAR)
    return Arrival.FromString(row).entities if row is not None else 0


def test_a_copy_that_is_killed_goes_on_where_it_stood(url: str, target: str) -> None:
    put(url, books(MANY))
    copy = ("copy", "--from", url, "--to", target, "--verify")
    with opened(target) as store, subprocess.Popen(command(*copy), cwd=ROOT) as killed:
        wait_until(lambda: arrived(store) > 500, "some entities to arrive")
        killed.kill()
        killed.wait()
        before = arrived(store)
    assert 500 < before < MANY
    assert_refused(run_here("dump", "--store", target, "/no/matter"), "is an unfinished copy itself; finish that first")
    put(f"{url}2", books(1))
    assert_refused(run_here("copy", "--from", f"{url}2", "--to", target), "the unfinished copy of another source")
    put(target, [entity(key(b"Book", b"stray"), shelf=1)])
    with opened(target) as store:
        assert arrived(store) == before
    different = run(*copy)
    assert (different.code, different.said) == (1, f"only in the target: {APP.decode()} Book:'stray'\n")
    assert different.complained.startswith("pbserver: the target is no true copy; ")
    with opened(target) as store:
        stray = keys.from_reference(key(b"Book", b"stray"))
        Datastore(store).write([Mutation(stray, None)], None, deadline=FAR)
    assert_done(run_here(*copy), f"copied {MANY} entities of {APP.decode()}")
    with opened(target) as store:
        assert not is_unfinished(store)


def test_a_dump_is_loaded_and_dumped_again_the_same(tmp_path: Path, url: str, target: str) -> None:
    put(url, [*books(500), *(entity(key(b"A\x00", b"b", app=each), a=1) for each in (b"s~x", b"s~\xc3\xa9"))])
    first, second, plain = (tmp_path / each for each in ("first", "second", "plain"))
    apps = f"{APP.decode()}, s~x, s~\N{LATIN SMALL LETTER E WITH ACUTE}"
    assert_done(run("dump", "--store", url, first), f"dumped 502 entities of {apps}")
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert_done(run("load", first, "--store", target), "loaded 502 entities of 3 apps")
    assert_refused(run_here("load", first, "--store", target), "holds data already, of s~toyapp, s~x, s~")
    assert_done(run_here("dump", second, "--store", url), f"dumped 502 entities of {apps}")
    assert second.read_bytes() == first.read_bytes()
    assert_done(run_here("dump", plain, "--store", target, "--plain"), f"dumped 502 entities of {apps}")
    assert plain.stat().st_size > first.stat().st_size
    assert run_here("verify", "--store", target).code == 0
    assert_refused(run_here("dump", first, "--store", url), f"{first} is there already: nothing was touched")


def test_a_damaged_file_writes_nothing(tmp_path: Path, url: str) -> None:
    put(url, books(20))
    file, new = tmp_path / "dump", tmp_path / "new"
    assert run_here("dump", "--store", url, file).code == 0
    whole = file.read_bytes()
    for damaged, reason in (
        (whole[:-1], "ends too early: its trailer is missing"),
        (whole[:200] + b"\x00" + whole[201:], "is damaged: it does not have the SHA-256 that its trailer says"),
        (b"other" + whole[5:], "is no dump of pbserver"),
    ):
        file.write_bytes(damaged)
        assert_refused(run_here("load", file, "--store", f"lmdb:{new}"), f"{file} {reason}")
        assert not new.exists()


def test_a_full_disk_in_the_middle_of_a_dump_leaves_nothing(tmp_path: Path, url: str) -> None:
    put(url, [blob(each, b"noise", os.urandom(100_000)) for each in books(60)])
    with small_disk(tmp_path / "disk", 2) as disk:
        assert_refused(
            run_here("dump", "--store", url, disk / "dump"), f"cannot write {disk / 'dump'}: No space left on device"
        )
        assert [*disk.iterdir()] == []


def test_one_app_is_copied_alone(url: str, target: str) -> None:
    put(url, [*books(3), *(entity(key(b"A", 1, app=each), a=1) for each in (b"s~x", b"s~y"))])
    assert_refused(
        run_here("copy", "--from", url, "--to", target, "--app", "s~typo"), "holds nothing of s~typo; it tells of"
    )
    done = run_here("copy", "--from", url, "--to", target, "--app", "s~x", "--app", "s~y", "--verify")
    assert_done(done, "copied 2 entities of s~x, s~y")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("copy", "--from", "nosuch:x", "--to", "lmdb:{}/target"), "unknown store 'nosuch'"),
        (("copy", "--from", "memory:", "--to", "lmdb:{}/target"), "memory: lives inside one process"),
        (("copy", "--from", "lmdb:{}/store", "--to", "lmdb:{}/../{name}/store"), "are the same store"),
        (("copy", "--from", "lmdb:{}/store", "--to", "lmdb:/proc/nowhere/data"), "lmdb /proc/nowhere/data: "),
        (("copy", "--from", "lmdb:{}/typo", "--to", "lmdb:{}/target"), "typo holds no data of pbserver"),
        (("copy", "--from", "lmdb:{}/old", "--to", "lmdb:{}/target"), "is of format b'pbserver 1'"),
        (("copy", "--from", "lmdb:{}/store", "--to", "lmdb:{}/old"), "is of format b'pbserver 1'"),
        (("dump", "--store", "lmdb:{}/store", "{}/none/dump"), "none/dump: No such file or directory"),
        (("dump", "--store", "lmdb:{}/store", "/proc/dump"), "cannot write /proc/dump: "),
        (("load", "--store", "lmdb:{}/target", "{}/none"), "none does not exist"),
        (("load", "--store", "lmdb:{}/target", "{}"), "is no file"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(
    tmp_path: Path, url: str, arguments: tuple[str, ...], reason: str
) -> None:
    put(url, books(1))
    if any("/old" in each for each in arguments):
        with opened(f"lmdb:{tmp_path / 'old'}") as store:
            store.ensure_tables()
            store.write([Write(meta_address("format"), b"pbserver 1")], deadline=FAR)
    assert_refused(run_here(*(each.format(tmp_path, name=tmp_path.name) for each in arguments)), reason)
    assert not (tmp_path / "target").exists()
