"""Google's SDK, unmodified, set up as an app outside App Engine sets it up."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from google.appengine.api import apiproxy_stub, apiproxy_stub_map, datastore_file_stub, namespace_manager
from google.appengine.datastore import datastore_stub_util
from google.appengine.ext import ndb
from google.appengine.ext.ndb import tasklets
from google.appengine.runtime import apiproxy_errors, default_api_stub

APP = "s~toyapp"

#: Set to "google", Google's in-process datastore answers in place of the server. A test that fails against it is
#: wrong itself. Tests that need a server process are left out then.
REFEREE = os.environ.get("PBSERVER_REFEREE") == "google"


def environment(port: int) -> dict[str, str]:
    """What App Engine's runtime would have put into the environment; the SDK reads it at every call."""
    return {
        "GAE_APPLICATION": APP,
        "APPLICATION_ID": APP,
        "GAE_RUNTIME": "python311",
        "API_HOST": "127.0.0.1",
        "API_PORT": str(port),
        "HTTP_X_APPENGINE_API_TICKET": "a-ticket",
        "AUTH_DOMAIN": "gmail.com",
    }


class _NoService(apiproxy_stub.APIProxyStub):
    """Answers as the server does for services it does not have."""

    def MakeSyncCall(self, service: str, call: str, request: Any, response: Any, request_id: Any = None) -> None:  # noqa: N802
        raise apiproxy_errors.CallNotFoundError(f"The API package {service!r} or call {call}() was not found.")


def use_server(stub: default_api_stub.DefaultApiStub) -> None:
    """Sends every API call to API_HOST:API_PORT."""
    apiproxy_stub_map.apiproxy = apiproxy_stub_map.APIProxyStubMap()
    default_api_stub.Register(stub)
    enter_thread()


def use_referee() -> None:
    """Sends datastore calls to Google's own implementation, empty, in this process."""
    apiproxy_stub_map.apiproxy = apiproxy_stub_map.APIProxyStubMap()
    policy = datastore_stub_util.PseudoRandomHRConsistencyPolicy(probability=1)
    stub = datastore_file_stub.DatastoreFileStub(APP, None, use_atexit=False, consistency_policy=policy)
    stub.SetAutoIdPolicy(datastore_stub_util.SEQUENTIAL)
    apiproxy_stub_map.apiproxy.RegisterStub("datastore_v3", stub)
    apiproxy_stub_map.apiproxy.RegisterStub("memcache", _NoService("memcache"))
    enter_thread()


def fresh_context() -> None:
    """A new ndb context and the default namespace; entities are not cached, so every get is a call."""
    namespace_manager.set_namespace("")
    tasklets.set_context(None)
    ndb.get_context().set_cache_policy(lambda _: False)


def enter_thread() -> None:
    """What each thread of an app needs: the ticket, and a context of its own."""
    default_api_stub.DefaultApiStub.SetUseRequestSecurityTicketForThread(True)
    fresh_context()


def in_threads(count: int, work: Callable[[Any], Any], arguments: Iterable[Any]) -> list[Any]:
    """`work` on each argument, in `count` threads of the app; results in the order of the arguments."""
    with ThreadPoolExecutor(count, initializer=enter_thread) as pool:
        return list(pool.map(work, arguments))


class Calls:
    """Every call the SDK makes while active, as `Method`, with what came of it."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Exception | None]] = []

    def __enter__(self) -> "Calls":
        apiproxy_stub_map.apiproxy.GetPostCallHooks().Append("calls", self._note)
        return self

    def __exit__(self, *_: object) -> None:
        apiproxy_stub_map.apiproxy.GetPostCallHooks().Clear()

    def _note(self, service: str, call: str, request: Any, response: Any, rpc: Any, error: Exception | None) -> None:
        self.made.append((f"{service}.{call}", error))

    def count(self, name: str) -> int:
        return sum(made == name for made, _ in self.made)
