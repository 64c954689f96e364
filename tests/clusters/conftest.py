"""Keeps what the suites over real databases have proven, for the support matrix in the README (matrix.py).

With CLUSTER_RESULTS=DIR every suite `test_NAME_store.py` that ran whole leaves DIR/NAME.json. Such a module has a
fixture `cluster` of its own and says what it runs on: `version(cluster) -> str`.
"""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from adapters.build import layers_for
from adapters.conformance.plugin import bare
from adapters.contract import OrderedStore
from controller.local import LocalCluster

_FACTS = pytest.StashKey[dict[str, dict[str, Any]]]()
#: The tests after which a database's cluster could not be brought back.
_LOST = pytest.StashKey[dict[str, str]]()
#: What tests are proofs of, by a part of their names; the others are of faults.
_PROOFS = {
    "contract": "contract",
    "keeps_it_too": "contract",
    "googles": "differential",
    "serializable": "isolation",
}


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FACTS] = {}
    config.stash[_LOST] = {}


@pytest.fixture(scope="module", autouse=True)
def described(request: pytest.FixtureRequest) -> Iterator[None]:
    """Writes down what a suite over a store runs on."""
    name = _store_of(request.module.__name__)
    if name is not None:
        cluster = request.getfixturevalue("cluster")
        store = bare(cluster.store_urls()[0])
        try:
            claims = store.capabilities
        finally:
            store.close()
        request.config.stash[_FACTS][name] = {
            "database": name,
            "version": request.module.version(cluster),
            "nodes": len(cluster.nodes),
            "atomicity": claims.atomicity.name,
            "durable": claims.durable.name,
            "layers": layers_for(claims),
            "date": datetime.now(UTC).date().isoformat(),
            "passed": {},
            "failed": {},
        }
    yield


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a failed test has left without some of its nodes is mended, or said at once: each of the others would wait
    for them.
    """
    name, lost = _store_of(request.module.__name__), request.config.stash[_LOST]
    if name in lost:
        pytest.fail(f"{name} could not be brought back after {lost[name]}")
    failed = request.session.testsfailed
    yield
    if name is not None and request.session.testsfailed > failed:
        cluster = request.getfixturevalue("cluster")
        lost[name] = request.node.name
        for node in cluster.nodes:
            cluster.start(node)
        del lost[name]


@pytest.fixture
def entry_points(cluster: LocalCluster, url: str, store: OrderedStore) -> list[str]:
    """URLs of one empty store, for several PBServers: all ways into the database, or the only one twice."""
    del store  # empties it
    urls = [*cluster.store_urls()]
    return urls if len(urls) > 1 else [url, url]


@pytest.fixture
def acknowledgements() -> int:
    """How many each client waits for, before and after the kill of a whole database."""
    return 20


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[misc, assignment]
    facts = item.config.stash[_FACTS].get(_store_of(item.module.__name__) or "")  # type: ignore[attr-defined]
    if facts is not None and (report.failed or report.when == "call"):
        counted = facts["passed" if report.passed else "failed"]
        proof = _proof_of(item)
        counted[proof] = counted.get(proof, 0) + 1
    return report  # type: ignore[return-value]


def pytest_sessionfinish(session: pytest.Session) -> None:
    where = os.environ.get("CLUSTER_RESULTS")
    if where:
        for name, facts in session.config.stash[_FACTS].items():
            Path(where).mkdir(parents=True, exist_ok=True)
            (Path(where) / f"{name}.json").write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")


def _store_of(module: str) -> str | None:
    last = module.rpartition(".")[2]
    return last.removeprefix("test_").removesuffix("_store") if last.endswith("_store") else None


def _proof_of(item: pytest.Item) -> str:
    """What a test is a proof of."""
    name: str = item.function.__name__  # type: ignore[attr-defined]
    if item.function.__module__ == "tests.unit.test_datastore":  # type: ignore[attr-defined]
        return "datastore"
    return next((proof for part, proof in _PROOFS.items() if part in name), "faults")
