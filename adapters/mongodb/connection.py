"""The driver's client: one per process, shared by all threads, its pool inside."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pymongo
from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection
from pymongo.errors import InvalidOperation, OperationFailure
from pymongo.read_concern import ReadConcern

from adapters.errors import StoreError, Unavailable, Unsupported
from adapters.mongodb.codec import ROWS, VOLATILE_ROWS, Document
from adapters.mongodb.errors import TRANSLATED, translated
from adapters.mongodb.nodes import Place, check_fit, has_replicas

CONNECT_SECONDS = 3.0  # a live server answers within that
HEARTBEAT_SECONDS = 5.0  # how soon a server that answers nothing is found out, and what it was asked given up
LONGEST_SECONDS = 3600.0
_EXISTS = 48

#: Of rows that must not be lost, and of volatile ones: `collections[table.volatile]`.
Collections = tuple[Collection[Document], Collection[Document]]


class Connection:
    """Thread-safe. Raises Unavailable, naming each host and its cause, when none can be used."""

    def __init__(self, place: Place) -> None:
        self.where = place.where
        self._closed = False
        try:
            self._client: MongoClient[Document] = MongoClient(
                host=[str(host) for host in place.hosts],
                appname="pbserver",
                connectTimeoutMS=int(CONNECT_SECONDS * 1000),
                serverSelectionTimeoutMS=int(CONNECT_SECONDS * 1000),
                heartbeatFrequencyMS=int(HEARTBEAT_SECONDS * 1000),
                retryWrites=False,  # FerretDB has no sessions, and layers and callers know better what may be repeated
                retryReads=False,
                **place.settings(),
            )
        except OSError as error:
            raise Unsupported(f"{self.where}: tls_ca {place.tls_ca}: {error.strerror or error}") from error
        except TRANSLATED as error:
            raise translated(error, self.where) from error
        try:
            self._collections = self._opened(place)
        except BaseException:
            self.close()
            raise

    def _opened(self, place: Place) -> Collections:
        """Reads of a primary that may be deposed wait until it knows that it still is one."""
        try:
            check_fit(place, self._client.admin.command("buildInfo"))
            level = "linearizable" if has_replicas(self._client.admin.command("hello")) else None
        except TRANSLATED as error:
            raise translated(error, self.where) from error
        database = self._client.get_database(place.database, read_concern=ReadConcern(level))
        return (
            database.get_collection(ROWS, write_concern=WriteConcern(w="majority", j=True)),
            database.get_collection(VOLATILE_ROWS, write_concern=WriteConcern(w="majority", j=False)),
        )

    @contextmanager
    def collections(self, deadline: float, *, writing: bool = False) -> Iterator[Collections]:
        """For calls that all end by the deadline; what they raise is a StoreError outside."""
        if self._closed:
            raise self._unavailable("this store is closed")
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise self._unavailable("the deadline has passed; nothing was asked")
        try:
            with pymongo.timeout(min(seconds, LONGEST_SECONDS)):
                yield self._collections
        except (*TRANSLATED, InvalidOperation) as error:
            raise self._translated(error, writing) from error

    def create(self, deadline: float) -> None:
        """What is missing."""
        with self.collections(deadline) as collections:
            for each in collections:
                try:
                    each.database.create_collection(each.name, check_exists=False)
                except OperationFailure as error:
                    if error.code != _EXISTS:
                        raise

    def drop(self, deadline: float) -> None:
        """The next write to a collection makes it again."""
        with self.collections(deadline, writing=True) as collections:
            for each in collections:
                each.drop()

    def close(self) -> None:
        self._closed = True
        self._client.close()

    def _translated(self, error: Exception, writing: bool) -> StoreError:
        if not isinstance(error, InvalidOperation):
            return translated(error, self.where, wrote=writing)
        if not self._closed:
            raise error
        return self._unavailable("this store is closed")

    def _unavailable(self, why: str) -> Unavailable:
        return Unavailable(f"{self.where}: {why}")
