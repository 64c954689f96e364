"""The stores by name. A driver is imported only when its store is opened."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import cast

from adapters.contract import Capabilities, PointStore
from adapters.errors import Unsupported
from adapters.url import StoreUrl


@dataclass(frozen=True, slots=True)
class Registration:
    """Where an adapter lives. Its module has `open_url(url: StoreUrl) -> PointStore` (or OrderedStore) and
    `CAPABILITIES`: what a store opened without options claims, known without opening one.
    """

    module: str
    driver: str | None = None  #: the import it needs beside the standard library
    package: str | None = None  #: what to install for it


STORES = {
    "memory": Registration("adapters.memory"),
    "cassandra": Registration("adapters.cassandra.store", driver="cassandra", package="'pbserver[cassandra]'"),
    "hbase": Registration("adapters.hbase.store", driver="thriftpy2", package="'pbserver[hbase]'"),
    "lmdb": Registration("adapters.lmdb.store", driver="lmdb", package="lmdb"),
    "mongodb": Registration("adapters.mongodb.store", driver="pymongo", package="'pbserver[mongodb]'"),
    "mysql": Registration("adapters.mysql.store", driver="pymysql", package="'pbserver[mysql]'"),
    "weak": Registration("adapters.weak"),
}


def opener(name: str) -> Callable[[StoreUrl], PointStore]:
    """The function that opens the store called `name`. Raises Unsupported saying what is known or missing."""
    return cast(Callable[[StoreUrl], PointStore], _module(name).open_url)


def capabilities(name: str) -> Capabilities:
    """What the store called `name` claims without options; options may change some of it. Raises like `opener`."""
    return cast(Capabilities, _module(name).CAPABILITIES)


def driver_installed(name: str) -> bool:
    """Whether the store called `name` has all it needs; imports nothing."""
    driver = STORES[name].driver
    return driver is None or find_spec(driver) is not None


def _module(name: str) -> ModuleType:
    registration = STORES.get(name)
    if registration is None:
        raise Unsupported(f"unknown store {name!r}; known stores: {', '.join(sorted(STORES))}")
    if not driver_installed(name):
        raise Unsupported(
            f"cannot open {name}: driver {registration.driver} is not installed; pip install {registration.package}"
        )
    return import_module(registration.module)
