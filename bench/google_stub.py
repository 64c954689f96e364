"""Google's own Datastore stub, in process: CPU of a get, a put and a query over a whole kind. A process of its own, run
by the experiment `limits`: `python -m bench.google_stub ENTITIES SECONDS`, which prints microseconds as JSON.
"""

import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from google.appengine.api import apiproxy_stub_map, datastore_file_stub  # type: ignore[import-untyped]
from google.appengine.datastore import datastore_pb, datastore_stub_util  # type: ignore[import-untyped]

from bench import data

KIND = b"Thing"


def open_stub() -> Any:
    stub = datastore_file_stub.DatastoreFileStub(
        data.APP.decode(),
        None,
        use_atexit=False,
        consistency_policy=datastore_stub_util.PseudoRandomHRConsistencyPolicy(probability=1),
        auto_id_policy="sequential",
        trusted=True,
        require_indexes=False,
        root_path=tempfile.gettempdir(),
    )
    apiproxy_stub_map.apiproxy.RegisterStub("datastore_v3", stub)
    return stub


class Stub:
    """Calls as an application makes them, each from and to a message."""

    def __init__(self, count: int) -> None:
        self._stub = open_stub()
        self._count = count
        self._numbers = itertools.cycle(random.Random(3).sample(range(1, count + 1), count))
        self._fresh = data.entities(b"Fresh", 200)
        for serialized in data.entities(KIND, count):
            self._put(serialized)
        self._put_next = itertools.count()

    def get(self) -> None:
        asked = datastore_pb.GetRequest()
        asked.key.add().MergeFromString(data.reference(KIND, next(self._numbers)).SerializeToString())
        response = datastore_pb.GetResponse()
        self._stub.MakeSyncCall("datastore_v3", "Get", asked, response)
        if not response.entity[0].HasField("entity"):
            sys.exit("an entity that was put is not there")

    def put(self) -> None:
        self._put(self._fresh[next(self._put_next) % len(self._fresh)])

    def query(self) -> None:
        """RunQuery, and Next until nothing is left."""
        query = datastore_pb.Query.FromString(data.kind_query(KIND, self._count).SerializeToString())
        result = datastore_pb.QueryResult()
        self._stub.MakeSyncCall("datastore_v3", "RunQuery", query, result)
        found = len(result.result)
        while result.more_results:
            following = datastore_pb.NextRequest(count=self._count)
            following.cursor.CopyFrom(result.cursor)
            result = datastore_pb.QueryResult()
            self._stub.MakeSyncCall("datastore_v3", "Next", following, result)
            found += len(result.result)
        if found != self._count:
            sys.exit(f"{self._count} entities were put, a query gives {found}")

    def _put(self, serialized: bytes) -> None:
        put = datastore_pb.PutRequest()
        put.entity.add().MergeFromString(serialized)
        self._stub.MakeSyncCall("datastore_v3", "Put", put, datastore_pb.PutResponse())


def cpu_us(work: Callable[[], None], seconds: float) -> float:
    """Of one call, over so many seconds at least."""
    work()
    calls = 0
    began = time.process_time()
    while (spent := time.process_time() - began) < seconds:
        work()
        calls += 1
    return spent / calls * 1e6


def main(count: int, seconds: float) -> None:
    stub = Stub(count)
    works = {"query": stub.query, "get": stub.get, "put": stub.put}  # what changes nothing first
    print(json.dumps({name: round(cpu_us(work, seconds), 1) for name, work in works.items()}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
