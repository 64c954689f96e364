"""The two that are compared: this server's application, and the SDK's own in-process Datastore as the referee."""

import time
from dataclasses import dataclass
from typing import Any

from google.appengine.api import api_base_pb2, apiproxy_stub_map, datastore_file_stub
from google.appengine.datastore import datastore_pb
from google.appengine.datastore.datastore_stub_util import PseudoRandomHRConsistencyPolicy
from google.appengine.runtime import apiproxy_errors

from adapters.build import open_store
from pbserver.dispatch import build_application
from pbserver.frontends.exchange import Request
from pbserver.settings import DatastoreSettings, Settings
from protos import remote_api_pb2

APP = "s~differential"

ANSWERS: dict[str, Any] = {
    "Get": datastore_pb.GetResponse,
    "Put": datastore_pb.PutResponse,
    "Delete": datastore_pb.DeleteResponse,
    "RunQuery": datastore_pb.QueryResult,
    "Next": datastore_pb.QueryResult,
    "BeginTransaction": datastore_pb.Transaction,
    "Commit": datastore_pb.CommitResponse,
    "Rollback": api_base_pb2.VoidProto,
    "AllocateIds": datastore_pb.AllocateIdsResponse,
}


@dataclass(frozen=True)
class Outcome:
    """An answer, or the Datastore error code in its place."""

    answer: Any
    code: int = 0
    detail: str = ""


class _NoMetrics:
    def observe(self, call: int, outcome: int, seconds: float) -> None:
        pass


class OurServer:
    """The application behind the hot port, called without the socket."""

    def __init__(self, url: str) -> None:
        self._store = open_store(url)
        # Answers are cut where the referee cuts its own.
        settings = Settings(store=url, testing=True, datastore=DatastoreSettings(batch_results=300))
        self._application = build_application(settings, self._store, _NoMetrics(), worker_index=1)

    def call(self, method: str, request: Any) -> Outcome:
        envelope = remote_api_pb2.Request(
            service_name=b"datastore_v3", method=method.encode(), request=request.SerializeToString()
        )
        http = Request(b"POST", b"/rpc_http", {}, envelope.SerializeToString(), time.monotonic())
        answer = remote_api_pb2.Response.FromString(self._application.answer(http).body)
        if answer.HasField("rpc_error"):
            return Outcome(None, -1 - answer.rpc_error.code, answer.rpc_error.detail)
        if answer.HasField("application_error"):
            return Outcome(None, answer.application_error.code, answer.application_error.detail)
        return Outcome(ANSWERS[method].FromString(answer.response))

    def close(self) -> None:
        self._application.close()
        self._store.close()


class Referee:
    """Google's DatastoreFileStub, strongly consistent, with sequential ids."""

    def __init__(self) -> None:
        self._stub = datastore_file_stub.DatastoreFileStub(
            APP,
            None,
            use_atexit=False,
            consistency_policy=PseudoRandomHRConsistencyPolicy(probability=1),
            auto_id_policy="sequential",
            require_indexes=False,
            root_path=None,
        )
        apiproxy_stub_map.apiproxy = apiproxy_stub_map.APIProxyStubMap()
        apiproxy_stub_map.apiproxy.RegisterStub("datastore_v3", self._stub)

    def call(self, method: str, request: Any) -> Outcome:
        own = type(request)()
        own.CopyFrom(request)
        answer = ANSWERS[method]()
        try:
            self._stub.MakeSyncCall("datastore_v3", method, own, answer)
        except apiproxy_errors.ApplicationError as error:
            return Outcome(None, error.application_error, error.error_detail)
        return Outcome(answer)

    def close(self) -> None:
        pass
