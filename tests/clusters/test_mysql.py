"""MariaDB with Galera: three nodes that all take writes; and a PBServer beside one of them."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pymysql
import pytest
from pymysql.cursors import Cursor
from rich.console import Console

from bench.__main__ import measure
from bench.clusters.databases import DATABASES
from bench.clusters.overhead import run
from bench.clusters.work import OPERATIONS
from bench.result import Results
from bench.run import SMALL
from controller import booting, processes
from controller.local import BootFailed, LocalCluster
from controller.processes import Leader
from controller.recipe import Node
from tests.clusters.checks import ROOT, assert_gone, assert_ready, kill_everything, until

pytestmark = pytest.mark.timeout(600)


@contextmanager
def cursor(node: Node) -> Iterator[Cursor]:
    connection = pymysql.connect(host=node.host, user="pbserver", database="pbserver", autocommit=True)
    with connection, connection.cursor() as opened:
        opened.execute("SET SESSION wsrep_sync_wait = 1")
        yield opened


def write(node: Node, value: str) -> None:
    with cursor(node) as opened:
        opened.execute("CREATE TABLE IF NOT EXISTS kept (v VARBINARY(20) PRIMARY KEY)")
        opened.execute("INSERT INTO kept VALUES (%s)", [value])


def read(node: Node) -> list[bytes]:
    with cursor(node) as opened:
        opened.execute("SELECT v FROM kept ORDER BY v")
        return [row[0] for row in opened.fetchall()]


def test_galera_outlives_a_killed_node_a_stop_and_kill_9_of_everything(tmp_path: Path) -> None:
    with LocalCluster.up("mysql", 3, tmp_path) as cluster:
        first, second, third = cluster.nodes
        assert_ready(cluster)
        write(first, "1")

        cluster.kill(first)
        write(second, "2")
        assert [bool(status.running) for status in cluster.status()] == [False, True, True]
        cluster.start(first)
        assert read(first) == [b"1", b"2"]

        cluster.down()
        assert_gone(cluster)
        with LocalCluster.up("mysql", 3, tmp_path) as again:
            assert [read(node) for node in again.nodes] == [[b"1", b"2"]] * 3

            again.kill(first)
            again.kill(second)
            assert again.status()[2].trouble
            with LocalCluster.up("mysql", 3, tmp_path) as whole:
                assert [read(node) for node in whole.nodes] == [[b"1", b"2"]] * 3
                whole.kill(first)
                write(third, "3")
                kill_everything(whole)
            with LocalCluster.up("mysql", 3, tmp_path) as recovered:
                assert [read(node) for node in recovered.nodes] == [[b"1", b"2", b"3"]] * 3
                assert_ready(recovered)
    assert_gone(cluster)


def pbdeploy(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy", "local", *arguments, "--dir", str(directory)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def example(*environment: str) -> list[str]:
    """What the README's first app says at the end, with these variables set."""
    run = subprocess.run(
        [sys.executable, ROOT / "examples" / "store.py"],
        env=os.environ | dict(each.split("=") for each in environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()[-2:]


def kill(node: Node, service: str) -> None:
    """kill -9 of a service's own process, behind the cluster's back; returns when its children are gone too."""
    leader = Leader.read(booting.record_of(node, service))
    assert leader is not None
    processes.members(leader)[0].kill()
    until(lambda: not processes.members(leader))


def test_an_app_is_served_at_the_entry_point_until_down(tmp_path: Path) -> None:
    try:
        up = pbdeploy(tmp_path, "up", "mysql", "--nodes", "1")
        assert up.returncode == 0, up.stderr
        cluster = LocalCluster(tmp_path)
        (node,) = cluster.nodes
        url, *said = up.stdout.splitlines()
        assert [url] == cluster.store_urls()
        assert said == [f"point an app at it: API_HOST={node.host} API_PORT=10001"]
        assert example(*re.findall(r"API_\w+=\S+", said[0])) == ["hello", "1"]
        assert_ready(cluster)
        shown = pbdeploy(tmp_path, "status")
        assert shown.returncode == 0
        assert f"http://{node.host}:10001  yes" in shown.stdout

        kill(node, "pbserver")
        shown = pbdeploy(tmp_path, "status")
        assert shown.returncode == 1
        assert shown.stdout.split()[-3:] == ["pbserver", "not", "running"]
        cluster.start(node)
        assert example(f"API_HOST={node.host}", "API_PORT=10001") == ["hello", "2"]

        kill(node, "mariadbd")
        until(lambda: "has had no answer from its store" in cluster.status()[0].trouble)
        assert cluster.status()[0].running == ("pbserver",)
        cluster.start(node)  # the database that begins anew, although a PBServer has outlived it
        assert example(f"API_HOST={node.host}", "API_PORT=10001") == ["hello", "3"]
    finally:
        down = pbdeploy(tmp_path, "down")
    assert down.returncode == 0
    steps = [line.split(maxsplit=2)[2] for line in down.stderr.splitlines()]
    assert steps == ["stopping pbserver", "stopping mariadbd"]
    assert_gone(cluster)

    without = pbdeploy(tmp_path, "up", "mysql", "--nodes", "1", "--no-pbserver")
    try:
        assert without.stdout.splitlines() == list(cluster.store_urls())
        assert [status.running for status in cluster.status()] == [("mariadbd",)]
        (node.log / "pbserver.log").unlink()
        with socket.create_server((node.host, 10001)), pytest.raises(BootFailed) as failure:
            LocalCluster.up("mysql", 1, tmp_path, pbserver=True)
        assert f"node1 ({node.host}): pbserver: pbserver ended" in str(failure.value)
        assert str(failure.value).endswith(f"cannot listen on {node.host}:10001: Address already in use")
        assert_ready(cluster)
    finally:
        cluster.down()
    assert_gone(cluster)


def test_the_bench_measures_everybody(tmp_path: Path) -> None:
    results = Results(tmp_path / "mysql.jsonl")
    scale = replace(SMALL, name="tiny", seconds=0.02, rounds=1)
    experiments = {"mysql": partial(run, name="mysql", database=DATABASES["mysql"])}
    assert measure(["mysql"], scale, results, Console(quiet=True), tmp_path, experiments), results.lines
    lines = [json.loads(line) for line in results.path.read_text().splitlines()]
    subjects = {line["name"] for line in lines if "cpu_us" in line}
    everybody = ("pbserver, applied", "core, applied", "native (a)", "native (b)")
    assert subjects == {f"{operation}: {who}" for operation in OPERATIONS for who in everybody}
    judged = [line["name"].partition(",")[0] for line in lines if line["type"] == "target"]
    assert judged == ["insert", "read", "update", "delete"]
    costs = [line for line in lines if line.get("name", "").endswith("what it costs")]
    assert [line["store_calls"] > 0 and 0 < line["store_ms"] <= line["core_ms"] for line in costs] == [True] * 5
