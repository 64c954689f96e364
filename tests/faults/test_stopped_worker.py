"""SIGSTOP of one worker: the other one's clients go on, and what the stopped one does afterwards overwrites nothing.

A worker that is stopped inside a commit holds LMDB's lock for writers; then only reads go on elsewhere, and writes are
refused at their deadlines (conformance/test_lmdb_processes.py; the load of test_random_faults.py meets that too). Here
workers are stopped while they are idle, so that everything must go on.
"""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from protos import datastore_v3_pb2 as v3
from protos.remote_api_pb2 import Response
from tests.e2e.server import Server
from tests.e2e.wire import Wire, assert_application_error, entity, envelope, key, put_request
from tests.faults.acknowledged import KIND, load, number_of

MOST_CONNECTIONS = 100
HERE = key(KIND, b"here")


class Pair(NamedTuple):
    """A worker with a client of its own, and a client of the other worker."""

    worker: psutil.Process
    its: Wire
    other: Wire

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.worker.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.worker.send_signal(signal.SIGCONT)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Server(tmp_path, f"lmdb:{tmp_path / 'store'}", workers=2) as server, ExitStack() as stack:
        workers = server.workers()
        found: dict[int, Wire] = {}
        for _ in range(MOST_CONNECTIONS):
            wire = stack.enter_context(Wire(server.port))
            found.setdefault(worker_of(wire, workers), wire)
            if len(found) == 2:
                break
        first, second = found
        yield Pair(workers[first], found[first], found[second])


def worker_of(wire: Wire, workers: dict[int, psutil.Process]) -> int:
    """The pid of the worker that answers on this client's connection."""
    reply = wire.post(envelope(b"Get", v3.GetRequest(key=[HERE]).SerializeToString()))
    own = reply.extensions["network_stream"].get_extra_info("client_addr")[1]
    return next(
        pid
        for pid, process in workers.items()
        if any(each.raddr and each.raddr.port == own for each in process.net_connections())
    )


def test_clients_of_the_other_worker_go_on(pair: Pair) -> None:
    pair.its.put(load(HERE, 1))
    with pair.stopped():
        for number in range(2, 50):
            pair.other.put(load(HERE, number))
            assert [number_of(proto) for proto in pair.other.query(kind=KIND)] == [number]
            transaction = pair.other.begin()
            pair.other.call("Put", put_request(load(HERE, number), transaction=transaction))
            pair.other.call("Commit", transaction)
    assert [proto and number_of(proto) for proto in pair.its.get(HERE)] == [49]


def test_a_commit_that_waited_in_a_stopped_worker_does_not_overwrite_what_came_meanwhile(pair: Pair) -> None:
    pair.other.put(load(HERE, 1))
    transaction = pair.its.begin()
    seen = pair.its.call("Get", v3.GetRequest(key=[HERE], transaction=transaction))
    assert len(seen.entity) == 1
    pair.its.call("Put", put_request(load(HERE, 2), transaction=transaction))
    with ThreadPoolExecutor(1) as pool:
        with pair.stopped():
            commit = pool.submit(pair.its.reply, "Commit", transaction)
            pair.other.put(load(HERE, 3))
            assert not commit.done()
        reply: Response = commit.result(60)
    assert_application_error(reply, v3.Error.CONCURRENT_TRANSACTION)
    for wire in (pair.its, pair.other):
        assert [proto and number_of(proto) for proto in wire.get(HERE)] == [3]


def test_a_transaction_begun_at_a_stopped_worker_is_committed_by_the_other(pair: Pair) -> None:
    transaction = pair.its.begin()
    pair.its.call("Put", put_request(load(HERE, 1), transaction=transaction))
    with pair.stopped():
        pair.other.call("Commit", transaction)
        assert [proto and number_of(proto) for proto in pair.other.get(HERE)] == [1]
    assert [proto and number_of(proto) for proto in pair.its.get(HERE)] == [1]


def test_ids_given_before_and_after_a_stop_differ(pair: Pair) -> None:
    given = [pair.its.put(entity(key(KIND, None))).key[0].path.element[0].id]
    with pair.stopped():
        given += [pair.other.put(entity(key(KIND, None))).key[0].path.element[0].id for _ in range(20)]
    given += [pair.its.put(entity(key(KIND, None))).key[0].path.element[0].id for _ in range(20)]
    assert len({*given}) == len(given)
