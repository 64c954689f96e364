"""`pbserver verify`: on a store that a server is serving, and on one that nobody serves."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapters.build import open_store
from adapters.contract import Operation, Write
from pbserver.datastore import keys, tables
from pbserver.datastore.keys import Key
from pbserver.verification.checks import kindless_address, row_address
from tests.e2e.server import ROOT, Server
from tests.e2e.wire import APP, Wire, entity, key

BOOKS = 120
OTHER = b"s~zzz"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PBSERVER_")}
    command = [sys.executable, "-m", "pbserver", "verify", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def verify(url: str, *more: object) -> subprocess.CompletedProcess[str]:
    return run("--store", url, "--app", APP.decode(), *more)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"lmdb:{tmp_path / 'store'}"


@pytest.fixture
def library(production_server: Server) -> Iterator[Wire]:
    """A running server with some books, some of them in a namespace."""
    with Wire(production_server.port) as wire:
        for number in range(1, BOOKS + 1):
            namespace = b"old" if number % 3 == 0 else b""
            wire.put(
                entity(key(b"Book", b"b%d" % number, namespace=namespace), shelf=number % 7, title=b"t%d" % number)
            )
        yield wire


def book(number: int, namespace: bytes = b"") -> Key:
    return keys.from_reference(key(b"Book", b"b%d" % number, namespace=namespace))


def harm(url: str, *operations: Operation) -> None:
    store = open_store(url)
    try:
        store.write(operations, deadline=time.monotonic() + 60)
    finally:
        store.close()


def test_a_store_in_use_is_right(library: Wire, url: str) -> None:
    with putting(library):
        first = verify(url)
    assert first.returncode == 0, first.stdout + first.stderr
    last = verify(url)
    assert last.returncode == 0, last.stdout + last.stderr
    assert last.stdout == f"{BOOKS} entities, {3 * BOOKS} index rows: nothing wrong\n"
    assert last.stderr.startswith(f"pbserver: checked {APP.decode()}; rows to which no listed app, ")
    assert len(last.stderr.splitlines()) == 1


@contextmanager
def putting(wire: Wire) -> Iterator[None]:
    """Books move between shelves meanwhile."""
    stop = threading.Event()

    def move() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            wire.put(entity(key(b"Book", b"b1"), shelf=number, title=b"moved"))

    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


def test_problems_are_told_and_repaired_beside_the_server(library: Wire, url: str) -> None:
    gone = book(999)
    harm(
        url,
        Write(kindless_address(book(1)), None),
        Write(row_address(book(2), tables.KIND_ROW + book(2).path), None),
        Write(row_address(gone, tables.KIND_ROW + gone.path), tables.row_value(gone, repeated=False)),
        Write(row_address(book(3, b"old"), tables.KIND_ROW + book(3).path), None),
    )
    found = verify(url)
    assert found.returncode == 1
    lines = found.stdout.splitlines()
    assert f"missing index row: {APP.decode()} Book:'b1', kindless row; --repair writes it" in lines
    assert f"missing index row: {APP.decode()} Book:'b2', kind row; --repair writes it" in lines
    assert f"index row without its entity: {APP.decode()} Book:'b999', kind row; --repair deletes it" in lines
    assert f"missing index row: {APP.decode()} namespace 'old' Book:'b3', kind row; --repair writes it" in lines
    assert lines[-1].endswith(": 4 problems")
    again = verify(url, "--repair")
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.splitlines()[:4] == [f"repaired: {line}" for line in lines[:4]]
    assert again.stdout.splitlines()[4:] == [
        "4 problems repaired",
        f"{BOOKS} entities, {3 * BOOKS} index rows: nothing wrong",
    ]
    assert len(library.query(kind=b"Book", keys_only=True, count=1000)) == BOOKS - BOOKS // 3


def test_only_the_first_problems_are_shown(library: Wire, url: str) -> None:
    harm(url, *(Write(kindless_address(book(number)), None) for number in range(1, 11) if number % 3))
    found = verify(url, "--most", 2)
    assert found.returncode == 1
    shown, second, more, total = found.stdout.splitlines()
    assert shown.startswith("missing index row: ")
    assert second.startswith("missing index row: ")
    assert more == "and 5 more"
    assert total.endswith(": 7 problems")


def test_what_nobody_can_mend_stays_a_problem(library: Wire, url: str) -> None:
    harm(url, Write(tables.entity_address(book(1)), b"\x12\x02xx"))
    found = verify(url, "--repair")
    assert found.returncode == 1
    assert found.stdout.startswith(f"unreadable entity: {APP.decode()} Book:'b1', ")
    assert "put it back from a backup" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--store", "nosuch:x"), "unknown store 'nosuch'"),
        (("--store", "memory:"), "memory: lives inside the server's process"),
        (("--store", "lmdb:"), "no path given"),
        (("--store", "lmdb:/proc/nowhere/data"), "lmdb /proc/nowhere/data: "),
        (("--config", "/no/such/file"), "settings file /no/such/file does not exist"),
    ],
)
def test_what_cannot_be_looked_at_is_one_clear_line(arguments: tuple[str, ...], reason: str) -> None:
    refused = run(*arguments, "--app", "s~x")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert len(refused.stderr.splitlines()) == 1
    assert refused.stderr.startswith("pbserver: ")
    assert reason in refused.stderr


def test_a_place_without_data_is_not_called_right(tmp_path: Path) -> None:
    refused = verify(f"lmdb:{tmp_path / 'typo'}")
    assert refused.returncode == 2
    assert "holds no data of pbserver; is this the place you mean?" in refused.stderr


def test_all_apps_are_checked_or_those_that_are_named(library: Wire, url: str) -> None:
    library.put(entity(key(b"Book", b"b1", app=OTHER), shelf=1))
    other = keys.from_reference(key(b"Book", b"b1", app=OTHER))
    harm(url, *(Write(row_address(each, tables.KIND_ROW + each.path), None) for each in (other, book(1))))
    everything = run("--store", url)
    assert everything.returncode == 1
    assert everything.stdout.endswith(f"{BOOKS + 1} entities, {3 * BOOKS} index rows: 2 problems\n")
    assert everything.stderr.startswith(f"pbserver: checked {APP.decode()}, {OTHER.decode()}; ")
    named = run("--store", url, "--app", OTHER.decode(), "--repair")
    assert named.returncode == 0
    assert named.stdout.startswith(f"repaired: missing index row: {OTHER.decode()} Book:'b1', kind row; ")
    assert named.stdout.endswith("\n1 entities, 2 index rows: nothing wrong\n")
    assert run("--store", url).stdout.endswith(": 1 problems\n")


def test_an_app_that_is_not_listed_must_be_named_once(library: Wire, url: str) -> None:
    del library
    harm(url, Write(tables.project_address(keys.partition(APP, b"", b"")), None))
    refused = run("--store", url)
    assert refused.returncode == 2
    assert "name it with --app ID" in refused.stderr
    found = verify(url, "--repair")
    assert found.returncode == 0
    assert found.stdout.startswith(f"repaired: project missing in table meta: {APP.decode()}; ")
    assert run("--store", url).returncode == 0
