"""The disk is full, or its file system read-only: refused in words, nothing lost, and all goes on when there is room.

A file system that turns read-only under a running server is left out: Linux refuses to remount one with open files.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.build import open_store
from pbserver.verification import problems
from protos import datastore_v3_pb2 as v3
from tests.e2e.server import Server
from tests.e2e.wire import APP, Wire, assert_application_error, blob, key, put_request
from tests.faults.acknowledged import KIND, PROJECT, load, number_of
from tests.faults.program import refused_start, verified
from tests.faults.small_disk import fill, set_read_only, small_disk

MEBIBYTES = 8
PUTS = 40
SOME_BYTES = 400_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", MEBIBYTES) as place:
        yield place


@pytest.fixture
def server(disk: Path, tmp_path: Path) -> Iterator[Server]:
    """With room for some entities."""
    with Server(tmp_path, f"lmdb:{disk / 'store'}", workers=2) as running:
        with Wire(running.port) as wire:
            for number in range(1, PUTS + 1):
                wire.put(load(key(KIND, number), number))
        yield running


def all_numbers(wire: Wire) -> list[int]:
    return [number_of(proto) for proto in wire.query(kind=KIND, count=1000)]


def wrong_with(disk: Path) -> list[str]:
    store = open_store(f"lmdb:{disk / 'store'}")
    try:
        return [str(each) for each in problems(store, [PROJECT]) if not each.fault.is_note]
    finally:
        store.close()


def test_puts_are_refused_reads_go_on_and_all_is_well_when_there_is_room_again(server: Server, disk: Path) -> None:
    workers = server.workers().keys()
    acknowledged = [*range(1, PUTS + 1)]
    ballast = fill(disk)
    os.truncate(ballast, ballast.stat().st_size - SOME_BYTES)
    with Wire(server.port) as wire:
        refused = 0
        for number in range(PUTS + 1, 2 * PUTS + 1):
            proto = blob(load(key(KIND, number), number), b"large", os.urandom(50_000))
            reply = wire.reply("Put", put_request(proto))
            if not reply.HasField("application_error"):
                acknowledged.append(number)
                continue
            assert_application_error(reply, v3.Error.TIMEOUT, "the disk is full")
            assert "is not known" not in reply.application_error.detail
            refused += 1
        assert refused > PUTS // 2
        assert all_numbers(wire) == acknowledged
        assert all(wire.get(*(key(KIND, number) for number in acknowledged)))
        ballast.unlink()
        wire.put(load(key(KIND, 1000), 1000))
        assert all_numbers(wire) == [*acknowledged, 1000]
    assert server.workers().keys() == workers
    assert wrong_with(disk) == []


def test_after_a_restart_on_a_full_disk_all_is_read(server: Server, disk: Path) -> None:
    server.kill()
    ballast = fill(disk)
    server.start()
    with Wire(server.port) as wire:
        assert all_numbers(wire) == [*range(1, PUTS + 1)]
    ballast.unlink()
    assert wrong_with(disk) == []


def test_transactions_on_a_full_disk_are_refused_by_a_worker_that_lives_on(server: Server, disk: Path) -> None:
    workers = server.workers().keys()
    ballast = fill(disk)
    with Wire(server.port) as wire:
        refused = 0
        while not refused:  # first the room goes that was taken in advance
            reply = wire.reply("BeginTransaction", v3.BeginTransactionRequest(app=APP))
            refused += reply.HasField("application_error")
        assert_application_error(reply, v3.Error.TIMEOUT, "the disk is full")
        ballast.unlink()
        wire.begin()
    assert server.workers().keys() == workers


def test_unsynced_puts_on_a_full_disk_are_refused_by_a_worker_that_lives_on(tmp_path: Path, disk: Path) -> None:
    with Server(tmp_path, f"lmdb:{disk / 'store'}?durability=none", workers=2) as server, Wire(server.port) as wire:
        workers = server.workers().keys()
        wire.put(load(key(KIND, 1), 1))
        ballast = fill(disk)
        acknowledged = [1]
        for number in range(2, PUTS):
            reply = wire.reply("Put", put_request(blob(load(key(KIND, number), number), b"large", os.urandom(300_000))))
            if reply.HasField("application_error"):
                assert_application_error(reply, v3.Error.TIMEOUT, "the disk is full")
                assert "is not known" not in reply.application_error.detail
            else:
                acknowledged.append(number)
        assert len(acknowledged) < PUTS // 2
        assert all_numbers(wire) == acknowledged
        ballast.unlink()
        wire.put(load(key(KIND, 1000), 1000))
        assert all_numbers(wire) == [*acknowledged, 1000]
        assert server.workers().keys() == workers


def test_a_new_store_on_a_full_disk_is_refused_in_words(disk: Path) -> None:
    ballast = fill(disk)
    assert "the disk is full" in refused_start(disk / "store")
    ballast.unlink()
    open_store(f"lmdb:{disk / 'store'}").close()


def test_a_read_only_file_system_is_refused_in_words_and_left_alone(server: Server, disk: Path) -> None:
    server.stop()
    before = (disk / "store" / "data.mdb").read_bytes()
    set_read_only(disk, read_only=True)
    assert "the file system is read-only" in refused_start(disk / "store")
    verification = verified(disk / "store")
    assert verification.returncode == 2
    assert "the file system is read-only" in verification.stderr
    assert len(verification.stderr.splitlines()) == 1
    set_read_only(disk, read_only=False)
    assert (disk / "store" / "data.mdb").read_bytes() == before
    server.start()
    with Wire(server.port) as wire:
        assert all_numbers(wire) == [*range(1, PUTS + 1)]
