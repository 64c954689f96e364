"""Counting in shared memory: over threads, over processes, over a worker's restart."""

import multiprocessing
import os
import threading

from prometheus_client import CollectorRegistry

from pbserver.metrics import Metrics, WorkerMetrics


def made() -> tuple[Metrics, CollectorRegistry]:
    metrics = Metrics(["Get", "Put"], ["ok", "Timeout"], workers=2, threads=3)
    registry = CollectorRegistry()
    registry.register(metrics)
    return metrics, registry


def count(worker: WorkerMetrics, times: int) -> None:
    for _ in range(times):
        worker.observe(1, 0, 0.003)


def test_calls_are_counted_by_name_and_outcome() -> None:
    metrics, registry = made()
    metrics.workers[0].observe(0, 0, 0.0001)
    metrics.workers[1].observe(0, 1, 0.02)
    metrics.workers[1].observe(0, 1, 100.0)
    assert registry.get_sample_value("pbserver_calls_total", {"call": "Get", "outcome": "ok"}) == 1
    assert registry.get_sample_value("pbserver_calls_total", {"call": "Get", "outcome": "Timeout"}) == 2
    assert registry.get_sample_value("pbserver_calls_total", {"call": "Put", "outcome": "ok"}) is None


def test_the_latency_histogram_is_cumulative_and_has_the_sum() -> None:
    metrics, registry = made()
    for seconds in (0.0001, 0.0005, 0.02, 100.0):
        metrics.workers[0].observe(0, 0, seconds)
    buckets = {
        bound: registry.get_sample_value("pbserver_call_seconds_bucket", {"call": "Get", "le": bound})
        for bound in ("0.0005", "0.01", "0.025", "10.0", "+Inf")
    }
    assert buckets == {"0.0005": 2, "0.01": 2, "0.025": 3, "10.0": 3, "+Inf": 4}
    total = registry.get_sample_value("pbserver_call_seconds_sum", {"call": "Get"})
    assert total is not None
    assert abs(total - 100.0206) < 1e-9


def test_threads_lose_no_increment() -> None:
    metrics, registry = made()
    threads = [threading.Thread(target=count, args=(metrics.workers[0], 20_000)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.get_sample_value("pbserver_calls_total", {"call": "Put", "outcome": "ok"}) == 60_000


def test_a_worker_that_is_replaced_counts_on() -> None:
    metrics, registry = made()
    fork = multiprocessing.get_context("fork")
    for _ in range(2):
        process = fork.Process(target=count, args=(metrics.workers[1], 100))
        process.start()
        process.join()
    assert registry.get_sample_value("pbserver_calls_total", {"call": "Put", "outcome": "ok"}) == 200


def test_connections_and_workers_are_those_alive() -> None:
    metrics, registry = made()
    for worker, connections in zip(metrics.workers, (3, 4), strict=True):
        worker.has_started(os.getpid())
        worker.beat(connections)
    assert registry.get_sample_value("pbserver_connections") == 7
    metrics.workers[0].has_ended()
    metrics.workers[0].has_restarted()
    assert registry.get_sample_value("pbserver_connections") == 4
    assert registry.get_sample_value("pbserver_workers") == 1
    assert registry.get_sample_value("pbserver_worker_restarts_total") == 1
