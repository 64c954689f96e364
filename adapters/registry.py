"""The stores by name. A driver is imported only when its store is opened."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import cast

from adapters.contract import OrderedStore
from adapters.errors import Unsupported
from adapters.url import StoreUrl


@dataclass(frozen=True, slots=True)
class Registration:
    """Where an adapter lives. Its module has `open_url(url: StoreUrl) -> OrderedStore` and `SHARED`, the capability
    that must be known before a store is opened.
    """

    module: str
    driver: str | None = None  #: the import it needs beside the standard library
    package: str | None = None  #: what to install for it


STORES = {
    "memory": Registration("adapters.memory"),
    "lmdb": Registration("adapters.lmdb.store", driver="lmdb", package="lmdb"),
}


def opener(name: str) -> Callable[[StoreUrl], OrderedStore]:
    """The function that opens the store called `name`. Raises Unsupported saying what is known or missing."""
    return cast(Callable[[StoreUrl], OrderedStore], _module(name).open_url)


def is_shared(name: str) -> bool:
    """Whether several processes may hold the store called `name` open at once. Raises like `opener`."""
    return bool(_module(name).SHARED)


def _module(name: str) -> ModuleType:
    registration = STORES.get(name)
    if registration is None:
        raise Unsupported(f"unknown store {name!r}; known stores: {', '.join(sorted(STORES))}")
    if registration.driver is not None and find_spec(registration.driver) is None:
        raise Unsupported(
            f"cannot open {name}: driver {registration.driver} is not installed; pip install {registration.package}"
        )
    return import_module(registration.module)
