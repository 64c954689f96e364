"""The load generators against a real server: none's time is forgotten, no error is hidden, and what dies is noticed."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench import data, server
from bench.calls import Calls, Cycle, InOrder, Mix, WholeQuery, request
from bench.client import Errors, Load, Sample
from bench.drive import Drive, split
from bench.measure import LoadFailed
from bench.server import Server
from protos import datastore_v3_pb2 as v3

KIND = b"Driven"
STORED = 20


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Server]:
    with server.pbserver(f"lmdb:{tmp_path / 'store'}?durability=none", min(os.sched_getaffinity(0))) as running:
        running.call(data.puts(data.entities(KIND, STORED)))
        yield running


def gets(number: int = 0, of: int = 1) -> Calls:
    del number, of
    return Cycle(data.gets(KIND, STORED), least_bytes=data.ENTITY_BYTES, name="get")


def load(ours: Server, calls: Calls, **settings: object) -> Load:
    given = {"connections": 4, "errors": Errors.COUNT, "warm_operations": 8, "patient": True, **settings}
    return Load(port=ours.port, calls=calls, **given)  # type: ignore[arg-type]


def drive(loads: list[Load], meanwhile: Callable[[Drive], None] = lambda _: None) -> Sample:
    with Drive(loads, [max(os.sched_getaffinity(0))]) as driven:
        driven.start()
        meanwhile(driven)
        return driven.finish()


def test_several_generators_do_together_what_was_asked(ours: Server) -> None:
    whole = load(ours, gets(), operations=101)
    sample = drive(split(whole, gets, 3))
    assert {name: tally.latencies.count for name, tally in sample.tallies.items()} == {"get": 101}
    assert sample.requests == 101
    assert not sample.all.failed


def test_an_open_loop_begins_as_many_as_intended(ours: Server) -> None:
    sample = drive(split(load(ours, gets(), seconds=2.0, per_second=40), gets, 2))
    assert sample.all.latencies.count + sample.not_begun == pytest.approx(80, abs=3)


def test_in_an_open_loop_a_pause_of_the_server_delays_all_who_would_have_called(ours: Server) -> None:
    def pause(driven: Drive) -> None:
        del driven
        (worker,) = ours.workers()
        worker.send_signal(signal.SIGSTOP)
        try:
            time.sleep(1.0)
        finally:
            worker.send_signal(signal.SIGCONT)

    sample = drive([load(ours, gets(), connections=1, seconds=2.0, per_second=50)], pause)
    latencies = sample.all.latencies
    assert latencies.at(0.999) > 0.9
    assert sum(count for highest, count in latencies.compact() if highest > 200) >= 30  # one, if it had waited its turn


def test_errors_are_counted_by_name_and_not_as_latencies(ours: Server) -> None:
    unknown = request(b"Commit", v3.Transaction(app=data.APP, handle=12345))
    mix = Mix([gets(), Cycle([unknown], name="commit")], [50, 50])
    sample = drive([load(ours, mix, operations=60, warm_operations=0)])
    bad, good = sample.tallies.of("commit"), sample.tallies.of("get")
    assert bad.errors == {"BAD_REQUEST": 60 - good.latencies.count}
    assert bad.latencies.count == 0
    assert good.latencies.count > 0
    assert not good.failed


def test_each_connection_goes_through_its_own_list_in_order(ours: Server) -> None:
    query = WholeQuery([request(b"RunQuery", data.kind_query(KIND, STORED))], STORED, name="query")
    lists = [[(gets(), 5), (query, count)] for count in (1, 2, 3)]
    sample = drive([load(ours, InOrder(lists), connections=3, warm_operations=0)])
    assert {name: tally.latencies.count for name, tally in sample.tallies.items()} == {"get": 15, "query": 6}


def test_a_load_without_end_ends_when_it_is_told_to(ours: Server) -> None:
    sample = drive([load(ours, gets(), per_second=100, by_second=True)], lambda driven: driven.halt())
    assert sample.seconds < 30


def test_a_server_that_dies_is_reported(ours: Server) -> None:
    with pytest.raises(LoadFailed, match=r"the server closed a connection|a connection broke"):
        drive([load(ours, gets())], lambda _: ours.stop())


def test_who_survives_goes_on_when_the_server_is_back(ours: Server) -> None:
    def kill(driven: Drive) -> None:
        (worker,) = ours.workers()
        worker.kill()
        worker.wait(10)
        time.sleep(3.0)
        driven.halt()

    sample = drive([load(ours, gets(), per_second=100, errors=Errors.SURVIVE, by_second=True)], kill)
    assert set(sample.all.errors) <= {"connection lost"}
    assert sum(tally.latencies.count for tally in sample.by_second.values()) == sample.all.latencies.count
    assert sample.by_second.of(2).latencies.count > 0
