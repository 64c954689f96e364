"""Many clients against a real server on LMDB with two workers: what they saw is strictly serializable.

ISOLATION_OPERATIONS sets how many calls are made. A failure names the history's file: see README.md.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.server import Server, wait_until
from tests.isolation import history as histories
from tests.isolation.checker import check
from tests.isolation.client import Client
from tests.isolation.history import History, Outcome
from tests.isolation.workload import Plan, broken_promises, run

log = logging.getLogger(__name__)

OPERATIONS = int(os.environ.get("ISOLATION_OPERATIONS", "50000"))
OPERATIONS_WITH_KILLS = 12_000
OPERATIONS_ON_WEAK_STORES = 6_000
WEAK_STORES = ["weak:?atomicity=row&versions=yes&shuffle=1&fail=1", "weak:?atomicity=scope&versions=no&shuffle=2"]
CLIENTS = 16
LATER_CLIENT = 1000

_SHOWN = 5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path, f"lmdb:{tmp_path / 'store'}", workers=2) as running:
        yield running


def assert_serializable(history: History, place: Path) -> None:
    """Leaves the history at `place` when it is not."""
    histories.save(history, place)
    history = histories.load(place)  # what is judged is what a reader of the file would judge
    anomalies = check(history)
    shown = "\n\n".join(map(str, anomalies[:_SHOWN]))
    assert not anomalies, f"{len(anomalies)} anomalies in {place}, the first of them:\n\n{shown}"
    assert [*broken_promises(history)][:_SHOWN] == []
    place.unlink()


def outcomes(history: History) -> dict[str, Counter[Outcome]]:
    """By name of the transaction."""
    counted: dict[str, Counter[Outcome]] = {}
    for transaction in history:
        counted.setdefault(transaction.name, Counter())[transaction.outcome] += 1
    return counted


@pytest.mark.timeout(120 + OPERATIONS // 200)
def test_transactions_and_plain_calls_are_strictly_serializable(server: Server, tmp_path: Path) -> None:
    history = run(Plan(port=server.port, calls=OPERATIONS))
    by_name = outcomes(history)
    log.info("%d transactions and plain calls", len(history))
    for name, counted in by_name.items():
        log.info("%s: %s", name, ", ".join(f"{count} {outcome}" for outcome, count in counted.items()))
    assert_serializable(history, tmp_path / "history.jsonl")
    assert sum(transaction.calls for transaction in history) >= OPERATIONS
    assert {transaction.error for transaction in history} == {"", "CONCURRENT_TRANSACTION"}
    assert_contended(by_name)


def assert_contended(by_name: dict[str, Counter[Outcome]]) -> None:
    """The run meant something: of each kind many were committed, and of the transactions many were refused."""
    transactions = ("transfer", "take", "count", "list", "move registers", "audit", "look around")
    for name in transactions:
        assert by_name[name][Outcome.OK] > OPERATIONS // 500, f"{name}: {by_name[name]}"
        assert by_name[name][Outcome.FAIL] > OPERATIONS // 2000, f"{name} met no contention: {by_name[name]}"
    refused = sum(by_name[name][Outcome.FAIL] for name in transactions)
    assert refused > sum(by_name[name].total() for name in transactions) // 10
    for name in ("put", "get", "delete", "query"):
        assert by_name[name][Outcome.OK] > OPERATIONS // 500, f"{name}: {by_name[name]}"
        assert by_name[name].keys() == {Outcome.OK}, f"a plain call never conflicts: {name}: {by_name[name]}"


def test_so_they_are_when_all_workers_are_killed_meanwhile(server: Server, tmp_path: Path) -> None:
    """What was under way may have happened or not; what was acknowledged is there whenever it is looked for."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, Plan(port=server.port, calls=OPERATIONS_WITH_KILLS))
        for epoch in (1, 2):
            wait_until(partial(_has_begun, server.port, epoch), f"the clients' arrival in epoch {epoch}")
            server.kill_workers()
        history = running.result()
    errors = Counter(transaction.error.partition(":")[0] for transaction in history)
    log.info("answers that were no results: %s", errors)
    assert errors["lost"] >= 2
    assert Outcome.UNKNOWN in {transaction.outcome for transaction in history}
    assert_serializable(history, tmp_path / "history-with-kills.jsonl")


@pytest.mark.parametrize("acknowledge", ["applied", "committed"])
@pytest.mark.parametrize("store", WEAK_STORES)
def test_so_they_are_on_stores_that_write_row_by_row(store: str, acknowledge: str, tmp_path: Path) -> None:
    settings = f'[datastore]\nacknowledge = "{acknowledge}"\n'
    with Server(tmp_path, store, workers=1, settings=settings) as server:
        history = run(Plan(port=server.port, calls=OPERATIONS_ON_WEAK_STORES))
    log.info("answers that were no results: %s", Counter(each.error.partition(":")[0] for each in history))
    assert_serializable(history, tmp_path / "history-on-a-weak-store.jsonl")
    outcomes_ = Counter(each.outcome for each in history)
    assert outcomes_[Outcome.OK] > OPERATIONS_ON_WEAK_STORES // 10
    assert outcomes_[Outcome.FAIL] > OPERATIONS_ON_WEAK_STORES // 100


def _has_begun(port: int, epoch: int) -> bool:
    client = Client(LATER_CLIENT, port)
    client.plain_get(f"counter-{epoch}-0")
    client.connection.close()
    return any(read.seen for transaction in client.history for read in transaction.reads)
