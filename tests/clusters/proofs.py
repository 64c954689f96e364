"""What is proven of PBServer over every database on a real cluster, beside the contract and the Datastore's own suite.

A suite takes all of it by `from tests.clusters.proofs import *`. It has the fixtures `cluster` (a LocalCluster), `url`,
and `store`, which is empty when a test begins; and `entry_points` too, where the one in conftest.py will not do.
"""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from google.protobuf.message import Message

from adapters.contract import Atomicity, OrderedStore
from controller.local import LocalCluster
from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto, Reference
from protos.remote_api_pb2 import Response
from tests.clusters.checks import PAUSE_SECONDS, assert_serializable_through, assert_verified, kill_everything
from tests.clusters.full_disk import test_a_full_disk_on_one_node_is_named_and_service_goes_on
from tests.clusters.stopping import MARK
from tests.differential.players import OurServer, Referee
from tests.differential.playing import play
from tests.e2e.server import Server, wait_until
from tests.e2e.wire import ANSWERS, Wire, assert_application_error, blob, entity, key, put_request
from tests.faults.acknowledged import Aftermath, Client, running

__all__ = [
    "test_a_full_disk_on_one_node_is_named_and_service_goes_on",
    "test_a_large_commit_of_two_groups_is_kept_or_a_bad_request",
    "test_a_server_stopped_in_the_middle_of_a_commit_brings_back_nothing_old",
    "test_every_answer_is_googles",
    "test_the_largest_commit_is_kept_and_what_is_larger_is_a_bad_request_at_most",
    "test_transactions_through_several_servers_are_strictly_serializable",
    "test_what_servers_acknowledged_outlives_kill_9_of_the_whole_database",
]

DIFFERENTIAL_CALLS = 2_000
DIFFERENTIAL_SEED = 1
ISOLATION_CALLS = 5_000
CLIENTS = 6
RECOVERY_SECONDS = 120
QUIET_SECONDS = 3
LARGE_ENTITIES = 10
LARGE_BYTES = 1_030_000  # ten of them are a commit of 10.3 MB: a call takes 10.49, a value in HBase 10.35

_KIND = b"Kept"
_DEADLINE = {"X-Google-RPC-Service-Deadline": "10"}


@contextmanager
def serving(urls: Sequence[str], directory: Path) -> Iterator[list[Server]]:
    """A PBServer of one worker for each of the URLs."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Server(_made(directory / f"server{number}"), url, workers=1))
            for number, url in enumerate(urls)
        ]


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


@pytest.mark.timeout(900)  # for the shrinking of a failure as well
def test_every_answer_is_googles(entry_points: list[str], tmp_path: Path) -> None:
    with OurServer(tmp_path, entry_points[0]) as ours:
        play((ours, Referee()), DIFFERENTIAL_CALLS, seed=DIFFERENTIAL_SEED)


@pytest.mark.timeout(900)
def test_transactions_through_several_servers_are_strictly_serializable(
    entry_points: list[str], tmp_path: Path
) -> None:
    with serving(entry_points, tmp_path) as servers:
        assert_serializable_through(servers, ISOLATION_CALLS, tmp_path)
    assert_verified(entry_points[0])


# -- as large as a commit may be


@pytest.mark.timeout(300)
def test_the_largest_commit_is_kept_and_what_is_larger_is_a_bad_request_at_most(
    entry_points: list[str], tmp_path: Path
) -> None:
    """About the most that one call holds, by a transaction and over it by a plain put; then twice as much."""
    keys = [key(_KIND, b"root", _KIND, b"child%d" % number) for number in range(2 * LARGE_ENTITIES)]
    first, rest = keys[:LARGE_ENTITIES], keys[LARGE_ENTITIES:]
    with serving(entry_points[:1], tmp_path) as (server,), Wire(server.port) as wire:
        for reply in (_committed(wire, _large(first, 1)), wire.reply("Put", _large(first, 2))):
            assert _error_of(reply) is None, reply.application_error
        assert _numbers(wire, keys) == [2] * LARGE_ENTITIES + [None] * LARGE_ENTITIES
        error = _error_of(_committed(wire, _large(first, 3), _large(rest, 3)))
        assert error in (None, v3.Error.BAD_REQUEST)
        kept = [2] * LARGE_ENTITIES + [None] * LARGE_ENTITIES if error else [3] * 2 * LARGE_ENTITIES
        assert _numbers(wire, keys) == kept


@pytest.mark.timeout(300)
def test_a_large_commit_of_two_groups_is_kept_or_a_bad_request(
    entry_points: list[str], store: OrderedStore, tmp_path: Path
) -> None:
    """Where it is applied row by row, the head of the second group holds what is to become of that group."""
    most = store.capabilities.max_value_bytes if _has_heads(store) else None
    too_large = most is not None and most < (LARGE_ENTITIES - 1) * LARGE_BYTES
    keys = [key(_KIND, b"root%d" % min(number, 1), _KIND, b"child%d" % number) for number in range(LARGE_ENTITIES)]
    with serving(entry_points[:1], tmp_path) as (server,), Wire(server.port) as wire:
        error = _error_of(_committed(wire, _large(keys, 1)))
        assert error == (v3.Error.BAD_REQUEST if too_large else None)
        assert _numbers(wire, keys) == [None if too_large else 1] * LARGE_ENTITIES
        wire.put(*(entity(each, number=2) for each in keys))  # nothing is left behind that stands in the way
        assert _numbers(wire, keys) == [2] * LARGE_ENTITIES


def _has_heads(store: OrderedStore) -> bool:
    """Whether commits are applied row by row."""
    return not (store.capabilities.atomicity is Atomicity.BATCH and store.capabilities.snapshot)


def _error_of(reply: Response) -> int | None:
    assert not reply.HasField("rpc_error"), reply.rpc_error
    return reply.application_error.code if reply.HasField("application_error") else None


def _large(keys: Iterable[Reference], number: int) -> v3.PutRequest:
    return put_request(*(blob(entity(each, number=number), b"blob", os.urandom(LARGE_BYTES)) for each in keys))


def _committed(wire: Wire, *requests: v3.PutRequest) -> Response:
    transaction = wire.begin(xg=True)
    for each in requests:
        each.transaction.CopyFrom(transaction)
        wire.call("Put", each)
    return wire.reply("Commit", transaction)


def _numbers(wire: Wire, keys: Sequence[Reference]) -> list[int | None]:
    found = [each for at in range(0, len(keys), LARGE_ENTITIES) for each in wire.get(*keys[at : at + LARGE_ENTITIES])]
    return [None if each is None else each.property[0].value.int64_value for each in found]


# -- a server that is stopped in the middle of a commit


class _StoppingServer(Server):
    """One worker, which stops itself when it is about to write index rows that hold MARK (stopping.py)."""

    def __init__(self, directory: Path, store: str) -> None:
        super().__init__(directory, store, workers=1)
        self._command[self._command.index("pbserver")] = "tests.clusters.stopping"

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Waits until it stands still; it goes on after the block."""
        (worker,) = self.workers().values()
        try:
            wait_until(lambda: worker.status() == psutil.STATUS_STOPPED, "the stop in the middle of the commit")
            yield
        finally:
            worker.send_signal(signal.SIGCONT)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("groups", [1, 2])
def test_a_server_stopped_in_the_middle_of_a_commit_brings_back_nothing_old(
    entry_points: list[str], store: OrderedStore, tmp_path: Path, groups: int
) -> None:
    """Where a commit is applied row by row, it has happened when the server stops, and none of its index rows is
    written: another server finishes it. Where it is one write, that write comes too late.
    """
    has_happened = _has_heads(store)
    kept = _Kept([key(_KIND, b"root%d" % number) for number in range(groups)])
    with ExitStack() as stack:
        server = stack.enter_context(_StoppingServer(_made(tmp_path / "stopped"), entry_points[0]))
        other = stack.enter_context(Server(_made(tmp_path / "other"), entry_points[-1], workers=1))
        its, others = (stack.enter_context(Wire(each.port)) for each in (server, other))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        others.put(*kept.entities(1, b"first"))
        transaction = kept.changed(its, 2, MARK)
        commit = pool.submit(its.reply, "Commit", transaction)
        with server.stopped():
            kept.assert_found(others, *((2, MARK) if has_happened else (1, b"first")))
            for number, text in enumerate((b"third", b"fourth"), 3):
                others.call("Commit", kept.changed(others, number, text))
            kept.assert_found(others, 4, b"fourth")
            others.call("Delete", v3.DeleteRequest(key=kept.children))
            others.put(*(kept.entities(5, b"fifth")[:groups]))
            kept.assert_found(others, 5, b"fifth", children=False)
            assert not commit.done()
        late = commit.result(60)
        if has_happened:
            assert not late.HasField("rpc_error") and not late.HasField("application_error"), late
        else:
            assert_application_error(late, v3.Error.CONCURRENT_TRANSACTION)
        for wire in (its, others):
            kept.assert_found(wire, 5, b"fifth", children=False)
        assert_verified(entry_points[0])
        its.call("Commit", kept.changed(its, 6, b"sixth"))
        kept.assert_found(others, 6, b"sixth")
    assert_verified(entry_points[0])


class _Kept:
    """Some groups of two entities each, which all hold the same number and text."""

    def __init__(self, roots: list[Reference]) -> None:
        self.roots = roots
        self.children = [key(_KIND, each.path.element[0].name, _KIND, b"child") for each in roots]
        self._held: set[tuple[int, bytes]] = set()

    def entities(self, number: int, text: bytes) -> list[EntityProto]:
        self._held.add((number, text))
        return [entity(each, number=number, text=text) for each in (*self.roots, *self.children)]

    def changed(self, wire: Wire, number: int, text: bytes) -> v3.Transaction:
        """A transaction that has read all of them and put them anew."""
        transaction = wire.begin(xg=True)
        wire.call("Get", v3.GetRequest(key=[*self.roots, *self.children], transaction=transaction))
        wire.call("Put", put_request(*self.entities(number, text), transaction=transaction))
        return transaction

    def assert_found(self, wire: Wire, number: int, text: bytes, *, children: bool = True) -> None:
        """The groups as ancestor queries, gets and each index show them hold this and nothing else."""
        everything = [*self.roots, *(self.children if children else ())]
        for root in self.roots:
            found = wire.query(kind=_KIND, ancestor=root)
            assert [*map(_content, found)] == [(number, text)] * (1 + children)
        got = [each for each in wire.get(*self.roots, *self.children) if each is not None]
        assert [*map(_content, got)] == [(number, text)] * len(everything)
        for each in self._held:
            wanted = everything if each == (number, text) else []
            assert _found_by(wire, number=each[0]) == _found_by(wire, text=each[1]) == _paths(wanted)
        assert _paths(each.key for each in wire.query(kind=_KIND, keys_only=True, count=1000)) == _paths(everything)


def _content(proto: EntityProto) -> tuple[int, bytes]:
    number, text = proto.property
    return number.value.int64_value, text.value.string_value


def _found_by(wire: Wire, **equal: int | bytes) -> list[bytes]:
    """What the index of a property holds, unchecked: no entity is fetched."""
    condition = v3.Query.Filter(op=v3.Query.Filter.EQUAL, property=entity(Reference(), **equal).property)
    return _paths(each.key for each in wire.query(kind=_KIND, filter=[condition], keys_only=True, count=1000))


def _paths(keys: Iterable[Reference]) -> list[bytes]:
    return sorted(each.path.SerializeToString() for each in keys)


# -- kill -9 of the whole database


class _Refused(Exception):
    """An error in place of an answer."""


class _Asking(Wire):
    """With deadlines well below the time after which it gives up itself: what is answered is over on the server."""

    def call(self, method: str, message: Message) -> Any:
        reply = self.reply(method, message, **_DEADLINE)
        if reply.HasField("rpc_error"):
            raise _Refused(f"rpc error {reply.rpc_error.code}: {reply.rpc_error.detail}")
        if reply.HasField("application_error"):
            raise _Refused(v3.Error.ErrorCode.Name(reply.application_error.code))
        return ANSWERS[method].FromString(reply.response)


class _Persistent(Client):
    """A client that goes on when it is refused something, which then has happened or not, but not by half."""

    def __init__(self, name: int) -> None:
        super().__init__(name)
        self.refused: Counter[str] = Counter()

    def run(self, server: Server, stop: threading.Event) -> None:
        with _Asking(server.port) as wire:
            while not stop.wait(PAUSE_SECONDS):
                try:
                    self.step(wire)
                except _Refused as refused:
                    self.refused[str(refused)] += 1
                    stop.wait(0.5)  # the database that comes back needs the cores too


def _wait_for_more(clients: Sequence[Client], count: int, what: str) -> None:
    wanted = [client.acknowledged + count for client in clients]
    wait_until(
        lambda: all(client.acknowledged >= each for client, each in zip(clients, wanted, strict=True)),
        f"{count} acknowledgements more for each client {what}",
        RECOVERY_SECONDS,
    )


@pytest.mark.timeout(900)
def test_what_servers_acknowledged_outlives_kill_9_of_the_whole_database(
    cluster: LocalCluster, entry_points: list[str], acknowledgements: int, tmp_path: Path
) -> None:
    """The servers run all the time, and serve again when the database does."""
    clients = [_Persistent(number) for number in range(1, CLIENTS + 1)]
    with serving(entry_points, tmp_path) as servers:
        with ExitStack() as at_work:
            for number, server in enumerate(servers):
                at_work.enter_context(running(server, clients[number :: len(servers)]))
            _wait_for_more(clients, acknowledgements, "before the kill")
            kill_everything(cluster)
            LocalCluster.up(cluster.name, len(cluster.nodes), cluster.directory)
            _wait_for_more(clients, acknowledgements, "after it")
        refused = sum((client.refused for client in clients), Counter())
        assert refused.keys() <= {"TIMEOUT", "CONCURRENT_TRANSACTION", "BAD_REQUEST"}, refused
        with Wire(servers[-1].port) as wire:
            aftermath = Aftermath(clients, wire)
            _wait_until_quiet(aftermath)
            _assert_all_there(aftermath)
    assert_verified(entry_points[0])


def _wait_until_quiet(aftermath: Aftermath) -> None:
    """What a client has given up the database may do seconds later, and so between two of the looks to come."""
    found, since = aftermath.stored(), time.monotonic()

    def is_quiet() -> bool:
        nonlocal found, since
        time.sleep(0.5)
        before, found = found, aftermath.stored()
        if found != before:
            since = time.monotonic()
        return time.monotonic() - since >= QUIET_SECONDS

    wait_until(is_quiet, f"nothing changes for {QUIET_SECONDS} s", RECOVERY_SECONDS)


def _assert_all_there(aftermath: Aftermath) -> None:
    aftermath.assert_acknowledged_are_got()
    aftermath.assert_ids_given_are_got()
    aftermath.assert_kind_query_agrees()
    aftermath.assert_property_query_agrees(b"number", v3.Query.Order.ASCENDING)
    aftermath.assert_property_query_agrees(b"parity", v3.Query.Order.DESCENDING)
    aftermath.assert_transactions_are_whole()
    aftermath.assert_no_id_twice()
