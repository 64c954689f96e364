"""One ZooKeeper for all tests of a run, booted when the first of them asks, with a place of its own for each store."""

import atexit
import shutil
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path

from adapters.contract import OrderedStore
from adapters.layers.checked import CheckedStore
from adapters.layers.znodes import Znodes
from adapters.layers.zookeeper import ZookeeperStore, first_nodes
from controller.local import LocalCluster

_numbers = count()


@cache
def hosts() -> str:
    """HOST:PORT. It ends with this process."""
    directory = Path(tempfile.mkdtemp(prefix="zookeeper-"))
    cluster = LocalCluster.up("zookeeper", 1, directory)

    def end() -> None:
        cluster.down()
        shutil.rmtree(directory)

    atexit.register(end)
    return cluster.store_urls()[0]


def unused_place() -> str:
    """Where nothing has been yet, as the option zookeeper= names it."""
    return f"{hosts()}/tests/{next(_numbers)}"


def place(buckets: int = 16) -> str:
    """Where no store has been yet, with few buckets: rows meet in them, and making and emptying them is quick."""
    where = unused_place()
    znodes = Znodes(where)
    znodes.create(first_nodes(buckets), time.monotonic() + 30)
    znodes.close()
    return where


def over(store: OrderedStore) -> OrderedStore:
    """`store` with compare-and-set."""
    return CheckedStore(ZookeeperStore(store, Znodes(place())))
