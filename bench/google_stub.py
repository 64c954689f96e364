"""Google's own Datastore stub, in process: CPU of one query over a whole kind. A process of its own, run by `query`."""

import json
import sys
import tempfile
import time
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


def whole_query(stub: Any, count: int) -> int:
    """RunQuery, and Next until nothing is left; the number of entities."""
    query = datastore_pb.Query.FromString(data.kind_query(KIND, count).SerializeToString())
    result = datastore_pb.QueryResult()
    stub.MakeSyncCall("datastore_v3", "RunQuery", query, result)
    found = len(result.result)
    while result.more_results:
        following = datastore_pb.NextRequest(count=count)
        following.cursor.CopyFrom(result.cursor)
        result = datastore_pb.QueryResult()
        stub.MakeSyncCall("datastore_v3", "Next", following, result)
        found += len(result.result)
    return found


def main(count: int, seconds: float) -> None:
    stub = open_stub()
    for serialized in data.entities(KIND, count):
        put = datastore_pb.PutRequest()
        put.entity.add().MergeFromString(serialized)
        stub.MakeSyncCall("datastore_v3", "Put", put, datastore_pb.PutResponse())
    found = whole_query(stub, count)
    if found != count:
        sys.exit(f"{count} entities were put, a query gives {found}")
    queries = 0
    began = time.process_time()
    while (spent := time.process_time() - began) < seconds:
        whole_query(stub, count)
        queries += 1
    print(json.dumps({"cpu_us": spent / queries * 1e6, "queries": queries}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
