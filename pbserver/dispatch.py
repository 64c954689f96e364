"""From a request to a handler and back: the table of calls, and the only place where an exception becomes a reply."""

import threading
import time
from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from typing import Protocol

import structlog
from google.protobuf.message import DecodeError

from adapters.contract import Durable, OrderedStore
from adapters.errors import Applied, Conflict, Corrupt, StoreError, TooLarge, Unavailable, Unsupported
from pbserver import __version__, wire
from pbserver.background import Hands, background_threads
from pbserver.datastore.core import Datastore, Indexing
from pbserver.datastore.errors import (
    BadRequest,
    ConcurrentTransaction,
    DeadlineExceeded,
    Internal,
    NeedIndex,
    Timeout,
)
from pbserver.datastore.execute import Limits
from pbserver.frontends.exchange import Answer, Request
from pbserver.handlers.v3 import HANDLERS, WRITES, Call
from pbserver.settings import Settings
from pbserver.wire import RpcError
from protos.datastore_v3_pb2 import Error

log = structlog.get_logger()

SERVICE = b"datastore_v3"
OK = "ok"

#: What each exception is called on the wire: a Datastore error code, or (rpc) an error of the call itself.
_APPLICATION_CODES: dict[type[Exception], int] = {
    BadRequest: Error.BAD_REQUEST,
    ConcurrentTransaction: Error.CONCURRENT_TRANSACTION,
    NeedIndex: Error.NEED_INDEX,
    Timeout: Error.TIMEOUT,
    Internal: Error.INTERNAL_ERROR,
    Unavailable: Error.TIMEOUT,
    Conflict: Error.CONCURRENT_TRANSACTION,
    TooLarge: Error.BAD_REQUEST,
    Unsupported: Error.INTERNAL_ERROR,
    Corrupt: Error.INTERNAL_ERROR,
}
_RPC_CODES: dict[type[Exception], int] = {
    DecodeError: RpcError.PARSE_ERROR,
    DeadlineExceeded: RpcError.DEADLINE_EXCEEDED,
}
_EXPECTED = (*_APPLICATION_CODES, *_RPC_CODES)

CALLS = [*(name.decode() for name in HANDLERS), "unknown"]
OUTCOMES = [OK, *(error.__name__ for error in _EXPECTED), "CallNotFound", "TooLargeRequest", "Bug"]

#: A call that usually takes longer lets another thread take the next requests meanwhile. Above what a put costs when
#: threads contend for it, or contention would keep itself alive.
_LONG_SECONDS = 0.0005
_NEWEST_SHARE = 0.1

_PREPARE_SECONDS = 30.0


class Metrics(Protocol):
    def observe(self, call: int, outcome: int, seconds: float) -> None: ...


class Application:
    """What one worker does with its requests. Thread-safe."""

    def __init__(self, settings: Settings, store: OrderedStore, metrics: Metrics, worker_index: int) -> None:
        limits = Limits(
            results=settings.datastore.batch_results,
            result_bytes=settings.datastore.batch_bytes,
            sorted_results=settings.datastore.sort_results,
        )
        self._default_seconds = settings.datastore.default_deadline_seconds
        self._most_seconds = settings.datastore.max_deadline_seconds
        indexing = Indexing(strict=settings.datastore.indexes == "strict", suggest=_suggest)
        self._hands = Hands()
        self._datastore = Datastore(
            store,
            limits=limits,
            indexing=indexing,
            testing=settings.testing,
            early=settings.datastore.acknowledge == "committed",
            beside=self._hands,
        )
        self._datastore.prepare(deadline=time.monotonic() + _PREPARE_SECONDS)
        self._observe = metrics.observe
        self._calls = {name: (index, handler) for index, (name, handler) in enumerate(HANDLERS.items())}
        self._unknown = len(HANDLERS)
        waits = store.capabilities.durable is not Durable.MEMORY
        self._synced = {self._calls[name][0] for name in WRITES} if waits else set()
        self._usual_seconds = [0.0] * len(CALLS)  # a moving average of each call's time; threads may lose an update
        self._outcomes = {name: index for index, name in enumerate(OUTCOMES)}
        self._closing = threading.Event()
        self._background = background_threads(self._datastore, self._closing, first=worker_index == 0)
        self._routes: dict[tuple[bytes, bytes], Callable[[Request], Answer]] = {
            (b"POST", b"/rpc_http"): self._rpc,
            (b"POST", b"/"): self._rpc,
            (b"GET", b"/"): self._banner,
        }
        if settings.testing:
            self._routes[b"POST", b"/reset"] = self._reset

    def start(self) -> None:
        """Begins the background work of this worker."""
        for thread in self._background:
            thread.start()

    def close(self) -> None:
        self._closing.set()
        for thread in self._background:
            if thread.is_alive():
                thread.join(timeout=5)
        self._hands.close()

    def answer(self, request: Request) -> Answer:
        route = self._routes.get((request.method, request.path))
        if route is not None:
            return route(request)
        if any(path == request.path for _, path in self._routes):
            return Answer(405, b"the Datastore is called by POST\n", b"text/plain")
        return Answer(404, b"calls go to POST /rpc_http (App Engine) or POST / (AppScale)\n", b"text/plain")

    def too_large(self, path: bytes, detail: str) -> Answer:
        if path in (b"/rpc_http", b"/"):
            self._observe(self._unknown, self._outcomes["TooLargeRequest"], 0.0)
            return Answer(200, wire.rpc_error(RpcError.REQUEST_TOO_LARGE, detail))
        return Answer(413, detail.encode() + b"\n", b"text/plain")

    def _rpc(self, request: Request) -> Answer:
        began = time.monotonic()
        call_index = self._unknown
        outcome = OK
        request_id = b""
        try:
            envelope = wire.decode(request.body)
            request_id = envelope.request_id
            found = self._calls.get(envelope.method)
            if found is None or envelope.service_name != SERVICE:
                outcome = "CallNotFound"
                return Answer(200, _not_found(envelope.service_name, envelope.method))
            call_index, handler = found
            if self._usual_seconds[call_index] > _LONG_SECONDS or call_index in self._synced:
                request.hand_over()
            call = Call(self._datastore, self._deadline(request), _claimed_app(request))
            return Answer(200, wire.reply(handler(call, envelope.request)))
        except _EXPECTED as error:
            outcome = next(each.__name__ for each in type(error).__mro__ if each in _EXPECTED)
            return Answer(200, _error_reply(error, request_id))
        except Exception:
            outcome = "Bug"
            ticket = request_id.decode(errors="replace")
            log.exception("a call failed inside the server", call=CALLS[call_index], request_id=ticket)
            detail = f"internal error; the server's log has more under request id {ticket!r}"
            return Answer(200, wire.application_error(Error.INTERNAL_ERROR, detail))
        finally:
            seconds = time.monotonic() - began
            self._usual_seconds[call_index] += (seconds - self._usual_seconds[call_index]) * _NEWEST_SHARE
            self._observe(call_index, self._outcomes[outcome], seconds)

    def _deadline(self, request: Request) -> float:
        """The instant (time.monotonic) the caller stops waiting. Raises DeadlineExceeded when that has passed."""
        value = request.headers.get(b"x-google-rpc-service-deadline")
        seconds = _seconds(value) if value is not None else None
        if seconds is None:
            seconds = self._default_seconds
        deadline = request.arrived + min(seconds, self._most_seconds)
        if deadline <= time.monotonic():
            raise DeadlineExceeded("the call's deadline passed before it began")
        return deadline

    def _banner(self, request: Request) -> Answer:
        del request
        return Answer(200, f"pbserver {__version__}: POST Datastore calls to /rpc_http\n".encode(), b"text/plain")

    def _reset(self, request: Request) -> Answer:
        self._datastore.reset(deadline=request.arrived + self._default_seconds)
        return Answer(200, b"all data is dropped\n", b"text/plain")


def build_application(settings: Settings, store: OrderedStore, metrics: Metrics, worker_index: int) -> Application:
    """The application of one worker. Raises adapters.errors.StoreError when the store cannot be used."""
    return Application(settings, store, metrics, worker_index)


def _suggest(index: str) -> None:
    log.info("a query was answered without the composite index that would serve it", index_yaml=index)


@lru_cache(maxsize=256)
def _seconds(value: bytes) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return max(0.0, seconds) if isfinite(seconds) else None


def _claimed_app(request: Request) -> bytes | None:
    """The app an AppScale app server speaks for: `AppData: app[:email:nickname:auth_domain]`."""
    data = request.headers.get(b"appdata")
    return data.partition(b":")[0] or None if data is not None else None


def _not_found(service: bytes, method: bytes) -> bytes:
    what = f"{service.decode(errors='replace')}.{method.decode(errors='replace')}"
    return wire.rpc_error(RpcError.CALL_NOT_FOUND, f"{what} is not served here; this is datastore_v3")


def _error_reply(error: Exception, request_id: bytes) -> bytes:
    kinds = type(error).__mro__
    rpc_code = next((_RPC_CODES[each] for each in kinds if each in _RPC_CODES), None)
    if rpc_code is not None:
        return wire.rpc_error(rpc_code, str(error))
    code = next(_APPLICATION_CODES[each] for each in kinds if each in _APPLICATION_CODES)
    detail = str(error)
    if isinstance(error, StoreError) and error.applied is Applied.UNKNOWN:
        detail += "; whether the write was applied is not known"
    if code == Error.INTERNAL_ERROR:
        log.error("a call met an internal error", error=detail, request_id=request_id.decode(errors="replace"))
    return wire.application_error(code, detail)
