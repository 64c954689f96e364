"""Where the store stands, and what the servers say of themselves. No I/O."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adapters.errors import Unsupported
from adapters.hosts import Host, parse_hosts
from adapters.mongodb.codec import KEY_BYTES
from adapters.url import StoreUrl

DEFAULT_PORT = 27017
DEFAULT_DATABASE = "pbserver"
DOCUMENT_BYTES = 16 << 20  # of MongoDB's, and of one change in a command
#: A change may hold two values: what is expected and what is written. Beside them the key, of two bytes for one.
VALUE_BYTES = (DOCUMENT_BYTES - 2 * KEY_BYTES - (1 << 14)) // 2

_DATABASE = re.compile(r"[0-9A-Za-z_-]{1,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A store URL taken apart."""

    hosts: tuple[Host, ...]
    database: str
    user: str
    password: str = field(repr=False)
    replica_set: str  #: empty: whatever the hosts are
    tls: str  #: off, on, verify
    tls_ca: str
    one_writer: bool  #: the operator says that FerretDB is given one write at a time

    @property
    def where(self) -> str:
        """For messages."""
        return f"mongodb {','.join(map(str, self.hosts))}/{self.database}"

    def settings(self) -> dict[str, Any]:
        """For the driver."""
        found: dict[str, Any] = {}
        if self.user:
            found |= {"username": self.user, "password": self.password}
        if self.replica_set:
            found["replicaSet"] = self.replica_set
        if self.tls != "off":
            found |= {"tls": True, "tlsAllowInvalidCertificates": self.tls == "on"}
        if self.tls_ca:
            found["tlsCAFile"] = self.tls_ca
        return found


def check_fit(place: Place, build: Mapping[str, Any]) -> None:
    """Raises Unsupported for a server that does not keep MongoDB's promises; `build`: what it says to buildInfo."""
    if "ferretdbVersion" in build and not place.one_writer:
        raise Unsupported(
            f"{place.where}: this is FerretDB 1, which looks for a document and then writes it, so of two clients that "
            "change one row both may win; use MongoDB, or let only one write at a time through to it and say so by "
            "one_writer=yes"
        )


def has_replicas(hello: Mapping[str, Any]) -> bool:
    """Whether a primary may be deposed; `hello`: what the server says to it."""
    return "setName" in hello or hello.get("msg") == "isdbgrid"


def parse_place(url: StoreUrl) -> Place:
    """Raises Unsupported for what does not fit. No message holds the password."""
    options = url.options
    hosts, _, database = url.place.partition("/")
    place = Place(
        hosts=parse_hosts("mongodb", hosts, DEFAULT_PORT, "mongodb:HOST:PORT,HOST:PORT/DATABASE"),
        database=database or DEFAULT_DATABASE,
        user=options.text("user", ""),
        password=options.password(),
        replica_set=options.text("replica_set", ""),
        tls=options.choice("tls", ("off", "on", "verify"), "off"),
        tls_ca=options.text("tls_ca", ""),
        one_writer=options.choice("one_writer", ("no", "yes"), "no") == "yes",
    )
    options.finish()
    if not _DATABASE.fullmatch(place.database):
        raise Unsupported(
            f"mongodb: {place.database!r} is no database; write mongodb:HOST:PORT,HOST:PORT/DATABASE, its name of "
            "up to 63 letters, digits, _ and -"
        )
    if place.password and not place.user:
        raise Unsupported("mongodb: a password is given, but no user; give user=NAME")
    if place.tls != "verify" and place.tls_ca:
        raise Unsupported(f"mongodb: tls_ca needs tls=verify, found tls={place.tls}")
    return place
