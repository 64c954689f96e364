"""Stores over one database and one place of a real ZooKeeper. Each stands for a process: they share nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest

from adapters.conformance.matrix import at_once
from adapters.contract import OrderedStore
from adapters.layers.znodes import Znodes
from adapters.layers.zookeeper import ZookeeperStore
from tests import zookeeper
from tests.layers.proxy import Proxy
from tests.layers.rows import Meanwhile, Open, weak

__all__ = ["at_once"]


@pytest.fixture
def database() -> OrderedStore:
    return weak()


@pytest.fixture
def meanwhile(database: OrderedStore) -> Meanwhile:
    return Meanwhile(database)


@pytest.fixture
def where() -> str:
    return zookeeper.place(buckets=1)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(zookeeper.hosts()) as between:
        yield between


@pytest.fixture
def opened(database: OrderedStore, where: str) -> Iterator[Open]:
    """Opens stores, over one database and place of ZooKeeper unless told otherwise, where all rows meet in a bucket."""
    stores = []

    def open_one(store: Any = database, at: str = where) -> ZookeeperStore:
        made = ZookeeperStore(store, Znodes(at))
        stores.append(made)
        made.ensure_tables()
        return made

    yield open_one
    for store in stores:
        store.close()
