"""The Datastore's core, called in this process: what PBServer does without its socket and messages."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median

from adapters.build import open_store
from bench.clusters.work import ROWS, Thing
from pbserver.background import Hands
from pbserver.datastore import entities, keys
from pbserver.datastore.core import Datastore
from pbserver.datastore.execute import Progress
from pbserver.datastore.mutations import Mutation
from pbserver.datastore.queries import Query, normalize
from protos.entity_pb2 import EntityProto

_SECONDS = 60.0


class _Waits:
    """A recorder (adapters.layers.measured): seconds that the opening thread was in the store, and its calls."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._thread = threading.get_ident()

    def observe(self, call: str, outcome: str, *, rows: int, size_bytes: int, seconds: float) -> None:
        del outcome, rows, size_bytes
        if threading.get_ident() == self._thread and call != "snapshot":  # whose time is that of the reads in it
            self.seconds += seconds
            self.calls += 1


class Core:
    """A Side. `acknowledge`: as PBServer's setting of that name."""

    def __init__(self, url: str, acknowledge: str) -> None:
        self._waits = _Waits()
        self._found: dict[str, list[tuple[float, int]]] = {}  # by operation: share of it in the store, calls
        self._store = open_store(url, recorder=self._waits)
        self._hands = Hands()
        self._datastore = Datastore(self._store, early=acknowledge == "committed", beside=self._hands)
        self._datastore.prepare(deadline=_soon())

    def store_share(self, operation: str) -> float:
        """Which part of an operation was spent in the store: the database, its driver and the adapter."""
        return median(share for share, _ in self._found[operation])

    def store_calls(self, operation: str) -> float:
        return median(calls for _, calls in self._found[operation])

    def insert(self, new: Thing) -> None:
        with self._watched("insert"):
            self._put(new)

    def read(self, stored: Thing) -> bytes:
        with self._watched("read"):
            (found,) = self._datastore.get([keys.from_reference(stored.proto.key)], None, deadline=_soon())
        return found or b""

    def update(self, old: Thing, new: Thing) -> None:
        del old
        with self._watched("update"):
            self._put(new)

    def delete(self, old: Thing) -> None:
        with self._watched("delete"):
            mutation = Mutation(keys.from_reference(old.proto.key), None)
            self._datastore.write([mutation], None, deadline=_soon())

    def query(self, kind: Thing) -> Sequence[bytes]:
        with self._watched("query"):
            key = keys.from_reference(kind.proto.key)
            asked = Query(partition=key.partition, kind=key.kind, ancestor=None, filters=(), orders=())
            batch = self._datastore.query(normalize(asked), Progress(None, 0, None), ROWS, None, deadline=_soon())
            return batch.frames

    def close(self) -> None:
        self._hands.close()
        self._store.close()

    def _put(self, new: Thing) -> None:
        proto = EntityProto.FromString(new.message)
        key = keys.from_reference(proto.key)
        mutation = Mutation(key, entities.build(key, proto, new.message))
        self._datastore.write([mutation], None, deadline=_soon())

    @contextmanager
    def _watched(self, operation: str) -> Iterator[None]:
        began, seconds, calls = time.perf_counter(), self._waits.seconds, self._waits.calls
        yield
        share = (self._waits.seconds - seconds) / (time.perf_counter() - began)
        self._found.setdefault(operation, []).append((share, self._waits.calls - calls))


def _soon() -> float:
    return time.monotonic() + _SECONDS
