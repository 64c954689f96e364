"""The operator's port, in a process of its own: health and metrics. It reads what the other processes wrote down."""

import asyncio
import os
import signal
import socket
import time
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.registry import Collector
from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from pbserver.metrics import Metrics

_STALE_SECONDS = 10.0  # several times what a worker takes between two checks of the store


def run_admin(listener: socket.socket, metrics: Metrics, ready_fd: int) -> None:
    """Serves `listener` until SIGTERM; writes b"ready\\n" to `ready_fd` when it does."""
    asyncio.run(_serve(listener, metrics, ready_fd))


async def _serve(listener: socket.socket, metrics: Metrics, ready_fd: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    listener.setblocking(False)
    server = HTTPServer(application(metrics))
    server.add_socket(listener)
    os.write(ready_fd, b"ready\n")
    await stop.wait()
    server.stop()
    await server.close_all_connections()


def application(metrics: Metrics) -> Application:
    """/healthz, /readyz and /metrics; anything else is 404."""
    registry = CollectorRegistry()
    registry.register(metrics)
    routes: list[Any] = [
        ("/healthz", _Health),
        ("/readyz", _Readiness, {"metrics": metrics}),
        ("/metrics", _Exposition, {"registry": registry}),
    ]
    return Application(routes, default_handler_class=_Missing, log_function=lambda _handler: None)


def not_ready(metrics: Metrics, now: float) -> list[str]:
    """Why calls may fail, one sentence per worker that is to blame; empty when all is well. `now`: time.monotonic()."""
    reasons = []
    for index, worker in enumerate(metrics.workers):
        age = now - worker.heartbeat
        if not worker.pid:
            reasons.append(f"worker {index} is not running")
        elif not worker.heartbeat:
            reasons.append(f"worker {index} has not opened its store yet")
        elif age > _STALE_SECONDS:
            reasons.append(f"worker {index} has had no answer from its store for {age:.0f} s")
    return reasons


class _Plain(RequestHandler):
    def set_default_headers(self) -> None:
        self.clear_header("Server")
        self.set_header("Content-Type", "text/plain; charset=utf-8")

    def answer(self, status: int, text: str) -> None:
        self.set_status(status)
        self.finish(text + "\n")


class _Health(_Plain):
    def get(self) -> None:
        self.answer(200, "alive")


class _Readiness(_Plain):
    def initialize(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def get(self) -> None:
        reasons = not_ready(self._metrics, time.monotonic())
        self.answer(503 if reasons else 200, "\n".join(reasons) or "ready")


class _Exposition(_Plain):
    def initialize(self, registry: Collector) -> None:
        self._registry = registry

    def get(self) -> None:
        self.set_header("Content-Type", CONTENT_TYPE_LATEST)
        self.finish(generate_latest(self._registry))


class _Missing(_Plain):
    def prepare(self) -> None:
        self.answer(404, "here are /healthz, /readyz and /metrics")
