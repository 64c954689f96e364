"""What the experiments on stores run on: store URLs, clusters booted for them, and servers that run already.

A store is named by one text: a PBServer store URL; `lmdb` alone, an embedded store in the run's own directory;
`cluster:NAME`, one of the controller's databases, booted with a PBServer at every entry point; `server:HOST:PORT`.
"""

from pathlib import Path

from adapters.errors import Unsupported
from adapters.registry import opener
from adapters.url import parse_url, shown
from bench.line import Address
from controller.databases import NAMES as DATABASES

EMBEDDED = "lmdb"
CLUSTER = "cluster:"
SERVER = "server:"


class UnknownStore(Exception):
    """No store can be meant by this text."""


def check(store: str) -> None:
    """Raises UnknownStore, saying what is known."""
    if store == EMBEDDED:
        return
    if store.startswith(SERVER):
        address(store)
        return
    if store.startswith(CLUSTER):
        name = store.removeprefix(CLUSTER)
        if name not in DATABASES:
            raise UnknownStore(f"no cluster of {name!r} can be booted; known databases: {', '.join(DATABASES)}")
        return
    try:
        opener(parse_url(store).name)
    except Unsupported as error:
        raise UnknownStore(str(error)) from error


def url(store: str, directory: Path) -> str:
    """What a PBServer opens; the embedded store lies in `directory`."""
    return f"lmdb:{directory / 'store'}" if store == EMBEDDED else store


def label(store: str) -> str:
    """As results name it: without passwords."""
    return shown(store)


def address(store: str) -> Address:
    """Host and port of a `server:HOST:PORT`. Raises UnknownStore."""
    host, _, port = store.removeprefix(SERVER).rpartition(":")
    if not host or not port.isdigit():
        raise UnknownStore(f"{store.removeprefix(SERVER)!r} is not HOST:PORT, such as 127.0.0.1:10001")
    return Address(host, int(port))
