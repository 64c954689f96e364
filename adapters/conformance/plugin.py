"""A pytest plugin that runs the suite on one store: `-p adapters.conformance.plugin ... --store URL`."""

import pytest

from adapters import registry
from adapters.build import layers_for, missing_capabilities, open_store
from adapters.conformance.matrix import (
    Entry,
    Matrix,
    at_once,
    batch_snapshot_store,
    batch_store,
    cas_points,
    deadline,
    elsewhere,
    points,
    scope_store,
    snapshot_store,
    store,
    unlimited_batch_store,
    unlimited_store,
    versioned_points,
)
from adapters.contract import OrderedStore, PointStore
from adapters.layers.checked import CheckedPoints, CheckedStore
from adapters.url import parse_url

__all__ = [
    "at_once",
    "batch_snapshot_store",
    "batch_store",
    "cas_points",
    "deadline",
    "elsewhere",
    "points",
    "scope_store",
    "snapshot_store",
    "store",
    "unlimited_batch_store",
    "unlimited_store",
    "versioned_points",
]

MATRIX = pytest.StashKey[Matrix]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store", metavar="URL", required=True, help="The store to test. ALL ITS ROWS ARE DELETED.")


def pytest_configure(config: pytest.Config) -> None:
    url: str = config.getoption("--store")
    parsed = parse_url(url)
    name, zookeeper = parsed.name, parsed.zookeeper is not None
    entries = {name: Entry(lambda _: emptied(bare(url)))}
    claims = registry.capabilities(name)
    missing = missing_capabilities(claims, zookeeper=zookeeper)
    if layers_for(claims, zookeeper=zookeeper) != ["checked"] and not missing:
        entries[f"{name}-with-layers"] = Entry(lambda _: emptied(open_store(url)))
    config.stash[MATRIX] = Matrix(entries)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.config.stash[MATRIX].parametrize(metafunc)


def bare(url: str) -> PointStore:
    """The adapter itself, checked, without the layers that supply what it lacks."""
    parsed = parse_url(url)
    opened = registry.opener(parsed.name)(parsed)
    return CheckedStore(opened) if isinstance(opened, OrderedStore) else CheckedPoints(opened)


def emptied(opened: PointStore) -> PointStore:
    opened.ensure_tables()
    opened.drop_tables()
    return opened
