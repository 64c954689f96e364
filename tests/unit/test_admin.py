"""Health, readiness and metrics over HTTP, and what makes a server not ready."""

import os
import time

from tornado.testing import AsyncHTTPTestCase
from tornado.web import Application

from pbserver.frontends.admin import application, not_ready
from pbserver.metrics import Metrics


def made() -> Metrics:
    metrics = Metrics(["Get"], ["ok"], workers=2, threads=1)
    for worker in metrics.workers:
        worker.has_started(os.getpid())
        worker.beat(1)
    return metrics


def test_every_kind_of_reason_names_its_worker() -> None:
    metrics = made()
    now = time.monotonic()
    assert not_ready(metrics, now) == []
    assert not_ready(metrics, now + 60)[1] == "worker 1 has had no answer from its store for 60 s"
    metrics.workers[1].has_ended()
    assert not_ready(metrics, now) == ["worker 1 is not running"]
    metrics.workers[1].has_started(os.getpid())
    assert not_ready(metrics, now) == ["worker 1 has not opened its store yet"]


class TestAdmin(AsyncHTTPTestCase):
    def get_app(self) -> Application:
        self.metrics = made()
        return application(self.metrics)

    def test_healthz_answers_while_the_process_lives(self) -> None:
        assert self.fetch("/healthz").code == 200

    def test_readyz_follows_the_workers(self) -> None:
        assert self.fetch("/readyz").code == 200
        self.metrics.workers[0].has_ended()
        reply = self.fetch("/readyz")
        assert (reply.code, reply.body) == (503, b"worker 0 is not running\n")

    def test_metrics_are_in_the_format_of_prometheus(self) -> None:
        self.metrics.workers[0].observe(0, 0, 0.001)
        reply = self.fetch("/metrics")
        assert reply.headers["Content-Type"].startswith("text/plain; version=")
        assert b'pbserver_calls_total{call="Get",outcome="ok"} 1.0\n' in reply.body

    def test_anything_else_is_404(self) -> None:
        assert self.fetch("/").code == 404
        assert self.fetch("/metrics/x").code == 404
        assert self.fetch("/healthz", method="POST", body=b"").code == 405
