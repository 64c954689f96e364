"""Those that are compared: this server behind its socket, and Google's own implementation as the referee."""

import http.client
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from google.appengine.api import apiproxy_stub_map, datastore_file_stub
from google.appengine.datastore.datastore_stub_util import PseudoRandomHRConsistencyPolicy
from google.appengine.runtime import apiproxy_errors

from adapters.build import is_shared
from protos import remote_api_pb2
from tests.differential.programs import MESSAGES
from tests.differential.values import APP
from tests.e2e.server import Server

#: Where the referee cuts its answers, and so this server in the match.
BATCH_RESULTS = 300

#: The code of an outcome that is no Datastore error but an exception inside the referee.
CRASHED = -1000


@dataclass(frozen=True)
class Outcome:
    """An answer, or the Datastore error code in its place: negative when the call itself was refused."""

    answer: Any
    code: int = 0
    detail: str = ""


class Player(Protocol):
    def reset(self) -> None:
        """Forgets everything, ids included."""

    def call(self, method: str, request: Any) -> Outcome:
        """Never changes `request`."""


class RemotePlayer:
    """A player that speaks remote_api over one kept-alive HTTP connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def reset(self) -> None:
        self._post("/reset", b"")

    def call(self, method: str, request: Any) -> Outcome:
        envelope = remote_api_pb2.Request(
            service_name=b"datastore_v3",
            method=method.encode(),
            request=request.SerializePartialToString(),
            request_id=b"differential",
        )
        answer = remote_api_pb2.Response.FromString(self._post("/rpc_http", envelope.SerializeToString()))
        if answer.HasField("rpc_error"):
            return Outcome(None, -1 - answer.rpc_error.code, answer.rpc_error.detail)
        if answer.HasField("application_error"):
            return Outcome(None, answer.application_error.code, answer.application_error.detail)
        return Outcome(MESSAGES[method][1].FromString(answer.response))

    def close(self) -> None:
        self._connection.close()

    def _post(self, path: str, body: bytes) -> bytes:
        self._connection.request("POST", path, body, {"Content-Type": "application/octet-stream"})
        response = self._connection.getresponse()
        content = response.read()
        if response.status != http.client.OK:
            raise AssertionError(f"POST {path}: {response.status} {content[:200]!r}")
        return content


class OurServer(RemotePlayer):
    """A pbserver process on a fresh store, ended with the context. A store of one process gets one worker."""

    def __init__(self, directory: Path, store: str) -> None:
        self._running = ExitStack()
        settings = f"[datastore]\nbatch_results = {BATCH_RESULTS}\n"
        workers = 2 if is_shared(store) else 1
        server = self._running.enter_context(Server(directory, store, workers=workers, testing=True, settings=settings))
        super().__init__(server.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
        self._running.__exit__(kind, error, tb)


class Referee:
    """Google's DatastoreFileStub in this process: strongly consistent, with sequential ids, wanting no index."""

    def __init__(self) -> None:
        self._stub: Any = None
        self.reset()

    def reset(self) -> None:
        self._stub = datastore_file_stub.DatastoreFileStub(
            APP,
            None,
            use_atexit=False,
            consistency_policy=PseudoRandomHRConsistencyPolicy(probability=1),
            auto_id_policy="sequential",
            require_indexes=False,
            root_path=None,  # an index.yaml could not name a kind with a NUL
        )
        apiproxy_stub_map.apiproxy = apiproxy_stub_map.APIProxyStubMap()
        apiproxy_stub_map.apiproxy.RegisterStub("datastore_v3", self._stub)

    def call(self, method: str, request: Any) -> Outcome:
        own = type(request)()
        own.CopyFrom(request)
        answer = MESSAGES[method][1]()
        self._forget_empty_kinds()
        try:
            self._stub.MakeSyncCall("datastore_v3", method, own, answer)
        except apiproxy_errors.ApplicationError as error:
            return Outcome(None, error.application_error, error.error_detail)
        except Exception as error:  # noqa: BLE001 - whatever breaks inside the referee is its answer
            return Outcome(None, CRASHED, f"{type(error).__name__}: {error}")
        return Outcome(answer)

    def _forget_empty_kinds(self) -> None:
        """Looking for a kind leaves an empty one behind in the stub, which metadata queries would list."""
        kinds = self._stub._GetAllEntities()
        for kind in [kind for kind, entities in kinds.items() if not entities]:
            del kinds[kind]


def open_referee(name: str, running: ExitStack, directory: Path) -> Player:
    """The referee `python` or `java`; what it needs ends with `running`."""
    if name == "java":
        from tests.differential.java_referee import JavaReferee

        return running.enter_context(JavaReferee(directory))
    if name != "python":
        raise ValueError(f"DIFFERENTIAL_REFEREE is {name!r}; it may be python or java")
    return Referee()
