"""Over 200 faults at random moments under load, on LMDB with two workers: kill -9, SIGSTOP, and ends of everything.

While clients put, overwrite, delete and commit, composite indexes are created, built and dropped. Each life of the
server meets a dozen faults and ends by one that takes all of it; now and then the store is verified as it lies there
and while it is used. PBSERVER_FAULTS_SEED repeats a run's choices, PBSERVER_FAULTS_LIVES makes it longer.
"""

import logging
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from adapters.build import open_store
from pbserver.verification import Problem, problems
from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import CompositeIndex, Index
from tests.e2e.server import Server, wait_until
from tests.e2e.wire import APP, Wire
from tests.faults.acknowledged import KIND, PROJECT, Aftermath, Client, number_of, running, wait_for_acknowledged

pytestmark = pytest.mark.timeout(600)

CLIENTS = 6
LIVES = int(os.environ.get("PBSERVER_FAULTS_LIVES", "16"))
SEED = int(os.environ.get("PBSERVER_FAULTS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
STOPS_OF_A_LIFE = 8
KILLS_OF_A_LIFE = 4  # the supervisor pauses longer after each
ACKNOWLEDGED_PER_LIFE = 60
DEFINITIONS = [((b"parity", False), (b"number", True)), ((b"text", False), (b"number", False))]


log = logging.getLogger(__name__)


@dataclass
class Run:
    """What happened to the server, and what the verifications said meanwhile."""

    server: Server
    url: str
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[Problem] = field(default_factory=list)

    def verify(self) -> None:
        store = open_store(self.url)
        try:
            self.wrong += problems(store, [PROJECT])
        finally:
            store.close()

    def some_worker(self) -> psutil.Process:
        found: list[psutil.Process] = []
        wait_until(lambda: found.extend(self.server.workers().values()) or found, "a worker")
        return self.chance.choice(found)

    def pause(self, least: float = 0.015, most: float = 0.04) -> None:
        """Not a wait for anything: the moment of a fault is random."""
        time.sleep(self.chance.uniform(least, most))


def stop_a_worker(run: Run) -> None:
    with stopped(run.some_worker()):
        run.pause()


def stop_all_workers(run: Run) -> None:
    workers = [*run.server.workers().values()]
    for worker in workers:
        send(worker, signal.SIGSTOP)
    run.pause()
    for worker in run.chance.sample(workers, len(workers)):
        send(worker, signal.SIGCONT)


def kill_a_worker(run: Run) -> None:
    send(run.some_worker(), signal.SIGKILL)


def kill_a_stopped_worker(run: Run) -> None:
    worker = run.some_worker()
    send(worker, signal.SIGSTOP)
    run.pause()
    send(worker, signal.SIGKILL)


def kill_all_workers(run: Run) -> None:
    for worker in run.server.workers().values():
        send(worker, signal.SIGKILL)


def kill_everything(run: Run) -> None:
    run.server.kill()


def kill_the_parent(run: Run) -> None:
    run.server.kill_parent()


STOPS = [stop_a_worker, stop_a_worker, stop_a_worker, stop_all_workers]
KILLS = [kill_a_worker, kill_a_worker, kill_a_stopped_worker, kill_all_workers]
ENDS = [kill_everything, kill_everything, kill_the_parent]


class stopped:  # noqa: N801 - used as a word
    """A worker that stands still in the body."""

    def __init__(self, worker: psutil.Process) -> None:
        self._worker = worker

    def __enter__(self) -> None:
        send(self._worker, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        send(self._worker, signal.SIGCONT)


def send(worker: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        worker.send_signal(number)


class Indexer:
    """Creates and drops indexes without a pause, and does not care what became of a call."""

    def __init__(self, server: Server, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self.calls = 0

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self._chance.uniform(0.05, 0.4)):
            with suppress(httpx.TransportError), Wire(self._server.port) as wire:
                call = self._chance.choice(["CreateIndex", "CreateIndex", "DeleteIndex"])
                wire.reply(call, index(self._chance.choice(DEFINITIONS)))
                self.calls += 1


def index(properties: tuple[tuple[bytes, bool], ...]) -> CompositeIndex:
    made = CompositeIndex(app_id=APP, id=0, state=CompositeIndex.WRITE_ONLY)
    made.definition.entity_type = KIND
    made.definition.ancestor = False
    for name, descending in properties:
        made.definition.property.add(name=name, direction=Index.DESCENDING if descending else Index.ASCENDING)
    return made


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    directory: Path = tmp_path_factory.mktemp("random-faults")
    url = f"lmdb:{directory / 'store'}"
    server = Server(directory, url, workers=2)
    try:
        yield Run(server, url)
    finally:
        server.kill()


@pytest.fixture(scope="module")
def aftermath(run: Run) -> Iterator[Aftermath]:
    log.info("PBSERVER_FAULTS_SEED=%d", SEED)
    clients = [Client(number + 1) for number in range(CLIENTS)]
    indexer = Indexer(run.server, random.Random(SEED + 1))
    stop = threading.Event()
    thread = threading.Thread(target=indexer.run, args=(stop,))
    run.server.start()
    thread.start()
    try:
        with running(run.server, clients):
            for life in range(LIVES):
                live(run, clients, verified=life % 4 == 3)
    finally:
        stop.set()
        thread.join(60)
    assert indexer.calls > LIVES
    acknowledged = sum(client.acknowledged for client in clients)
    log.info("%d acknowledged, %d calls about indexes, faults: %s", acknowledged, indexer.calls, dict(run.faults))
    with Wire(run.server.port) as wire:
        for definition in DEFINITIONS:
            wire.reply("CreateIndex", index(definition))
        wait_until(lambda: {*states(wire)} == {CompositeIndex.READ_WRITE}, "the end of the index builds", 60)
        yield Aftermath(clients, wire)


def live(run: Run, clients: list[Client], *, verified: bool) -> None:
    """One life of the server: faults, an end, and a new start."""
    kinds: list[Callable[[Run], None]] = [
        *(run.chance.choice(STOPS) for _ in range(STOPS_OF_A_LIFE)),
        *(run.chance.choice(KILLS) for _ in range(KILLS_OF_A_LIFE)),
    ]
    run.chance.shuffle(kinds)
    for each in kinds:
        run.pause()
        each(run)
        run.faults[each.__name__] += 1
    wait_for_acknowledged(clients, ACKNOWLEDGED_PER_LIFE, f"acknowledged steps after the faults of seed {SEED}")
    if verified:
        run.verify()
    end = run.chance.choice(ENDS)
    end(run)
    run.faults[end.__name__] += 1
    if verified:
        run.verify()
    run.server.start()


def states(wire: Wire) -> list[int]:
    return [each.state for each in wire.call("GetIndices", v3.GetIndicesRequest(app_id=APP)).index]


def test_200_faults_were_met(aftermath: Aftermath, run: Run) -> None:
    assert run.faults.total() >= 13 * LIVES
    assert set(run.faults) == {each.__name__ for each in (*STOPS, *KILLS, *ENDS)} or LIVES < 16
    assert sum(client.acknowledged for client in aftermath.clients) >= LIVES * ACKNOWLEDGED_PER_LIFE


def test_nothing_acknowledged_was_lost(aftermath: Aftermath) -> None:
    aftermath.assert_acknowledged_are_got()
    aftermath.assert_ids_given_are_got()
    aftermath.assert_transactions_are_whole()


def test_no_id_was_given_twice(aftermath: Aftermath) -> None:
    aftermath.assert_no_id_twice()


def test_kind_and_property_queries_agree_with_gets(aftermath: Aftermath) -> None:
    aftermath.assert_kind_query_agrees()
    for name in (b"number", b"text", b"parity"):
        aftermath.assert_property_query_agrees(name, v3.Query.Order.DESCENDING)


def test_queries_by_composite_indexes_agree_with_gets(aftermath: Aftermath) -> None:
    stored = [number_of(proto) for proto in aftermath.stored()]
    condition = v3.Query.Filter(op=v3.Query.Filter.EQUAL)
    condition.property.add(name=b"parity", multiple=False).value.int64_value = 1
    order = [v3.Query.Order(property=b"number", direction=v3.Query.Order.DESCENDING)]
    found = aftermath.wire.query(kind=KIND, filter=[condition], order=order)
    assert [*map(number_of, found)] == sorted((each for each in stored if each % 2), reverse=True)


def test_verification_finds_nothing(aftermath: Aftermath, run: Run) -> None:
    run.verify()
    assert run.wrong == []
