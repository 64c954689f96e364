"""The Datastore's own tests, over a store that gets its compare-and-set from ZooKeeper."""

from collections.abc import Iterator

import pytest

from adapters.build import open_store
from adapters.contract import OrderedStore
from tests import zookeeper
from tests.unit.test_datastore import *  # noqa: F403

WEAK = "weak:?atomicity=row&versions=yes&compare_and_set=no&shuffle=1"


@pytest.fixture
def store() -> Iterator[OrderedStore]:
    opened = open_store(f"{WEAK}&zookeeper={zookeeper.place()}")
    yield opened
    opened.close()
