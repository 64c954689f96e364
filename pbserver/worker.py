"""One worker process: it opens the store, serves its socket on a fixed set of threads, and drains when told to stop."""

import gc
import os
import signal
import socket
import ssl
import sys
import threading
from typing import TYPE_CHECKING

import structlog

from adapters.url import shown
from pbserver.frontends.http import HttpServer
from pbserver.frontends.tls import server_context
from pbserver.metrics import WorkerMetrics
from pbserver.settings import Settings

if TYPE_CHECKING:
    from adapters.contract import OrderedStore

READY = b"ready\n"
BEAT_SECONDS = 2.0
_GARBAGE_THRESHOLDS = (20_000, 20, 20)  # requests leave no cycles behind; a full collection would stop every thread
_SWITCH_SECONDS = 0.0002  # beside two long queries the median get takes 0.5 ms; at Python's own 5 ms it takes 5

_log = structlog.get_logger("pbserver.worker")


class StartFailed(Exception):
    """The operator must change something before this process can start; the message says what, in one line."""


def preload() -> None:
    """Imports what a worker needs, in the parent before the forks: once, and in memory that all workers share."""
    import adapters.build  # noqa: F401
    import pbserver.dispatch  # noqa: F401


def run_worker(settings: Settings, listener: socket.socket, metrics: WorkerMetrics, ready_fd: int, index: int) -> None:
    """Serves `listener` until SIGTERM, then drains. Writes READY to `ready_fd` when the first call could be answered.

    Runs in the main thread of a process of its own. Raises StartFailed when it cannot start; SIGTERM before it is
    ready ends the process at once.
    """
    from adapters.errors import StoreError
    from pbserver import dispatch

    tls = _tls_context(settings)
    store = _open(settings)
    try:
        try:
            application = dispatch.build_application(settings, store, metrics, worker_index=index)
        except StoreError as error:
            raise StartFailed(f"the store {shown(settings.store)} cannot be used: {error}") from error
        server = HttpServer([listener], application, threads=settings.threads, settings=settings.http, tls=tls)
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda _signal, _frame: stop.set())
        application.start()
        sys.setswitchinterval(_SWITCH_SECONDS)
        _settle_memory()
        server.start()
        threading.Thread(target=_beat, args=(store, server, metrics, stop), name="heartbeat", daemon=True).start()
        os.write(ready_fd, READY)
        stop.wait()
        server.drain()
        finished = server.close()
        application.close()
    except BaseException:
        store.close()
        raise
    if finished:
        store.close()
    else:
        _log.warning("calls were still under way at the end of drain_seconds; they are cut off", worker=index)


def _tls_context(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    try:
        return server_context(settings.tls_cert, settings.tls_key)
    except OSError as error:
        raise StartFailed(
            f"cannot use tls_cert {settings.tls_cert} with tls_key {settings.tls_key}: {error}"
        ) from error


def _open(settings: Settings) -> "OrderedStore":
    from adapters.build import open_store
    from adapters.errors import StoreError

    try:
        return open_store(settings.store)
    except (StoreError, OSError, ValueError) as error:
        raise StartFailed(f"cannot open the store {shown(settings.store)}: {error}") from error


def _settle_memory() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)


def _beat(store: "OrderedStore", server: HttpServer, metrics: WorkerMetrics, stop: threading.Event) -> None:
    """Asks the store every few seconds whether it answers; /readyz goes by the time of the last yes."""
    from adapters.errors import StoreError

    answers = True
    while True:
        try:
            store.check()
        except StoreError as error:
            if answers:
                _log.error("the store does not answer; this worker is not ready", error=str(error))
            answers = False
            metrics.count_connections(server.connection_count())
        else:
            if not answers:
                _log.info("the store answers again")
            answers = True
            metrics.beat(server.connection_count())
        if stop.wait(BEAT_SECONDS):
            return
