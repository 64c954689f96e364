"""Waiting for services: a deadline that passes names the node and shows its log. Subnets of clusters."""

import random
import socket
import sys
from pathlib import Path

import pytest

from controller import booting, processes, subnets
from controller.booting import BootFailed
from controller.databases import recipe
from controller.processes import Leader
from controller.recipe import Cluster, Command, Node, NotReady, Service

ZOOKEEPER = recipe("zookeeper")


@pytest.fixture
def seen(tmp_path: Path) -> Cluster:
    """One node of ZooKeeper of which nothing runs."""
    node = Node(1, "127.7.7.1", tmp_path / "node1")
    cluster = Cluster((node,), {"java": tmp_path, "zookeeper": tmp_path}, node)
    booting.write_files(ZOOKEEPER, cluster)
    return cluster


def never(node: Node, cluster: Cluster) -> None:
    raise NotReady("nobody answers")


def wait(cluster: Cluster, seconds: float) -> str:
    with pytest.raises(BootFailed) as failure:
        booting.wait_for(never, "zookeeper", ZOOKEEPER, cluster.primary, cluster, seconds)
    return str(failure.value)


def test_a_deadline_names_the_node_and_shows_the_end_of_its_log(seen: Cluster) -> None:
    lines = [f"line {number} " + "x" * 1000 for number in range(100)]
    (seen.primary.log / "zookeeper.log").write_text("\n".join(lines))
    first, second, *shown = wait(seen, 0.2).splitlines()
    assert first == "node1 (127.7.7.1): zookeeper: not within 0 s; nobody answers"
    assert second == f"--- {seen.primary.log}/zookeeper.log"
    assert [line[:8].rstrip() for line in shown] == [f"line {number}" for number in range(85, 100)]
    assert max(map(len, shown)) == 300


def test_a_service_that_ends_is_not_waited_for(seen: Cluster) -> None:
    command = (sys.executable, "-c", "print('no such jar'); raise SystemExit(1)")
    booting.start_service(Service("zookeeper", command), seen.primary).wait()
    message = wait(seen, 60)
    assert "zookeeper: zookeeper ended; nobody answers" in message
    assert message.endswith("no such jar")


def test_what_was_left_behind_is_ended_before_a_boot_and_what_runs_is_kept(seen: Cluster) -> None:
    node = seen.primary
    gone = booting.start_service(Service("gone", ("sh", "-c", "sleep 1000 & exit 0")), node)
    gone.wait()
    runs = booting.start_service(Service("runs", ("sleep", "1000")), node)
    left = Leader.read(booting.record_of(node, "gone"))
    assert left is not None
    assert len(processes.members(left)) == 1
    try:
        booting.clear_records([node])
        assert processes.members(left) == []
        assert booting.records(node) == [booting.record_of(node, "runs")]
        assert booting.runs(node, "runs")
    finally:
        runs.kill()
        runs.wait()


def test_a_command_that_fails_shows_what_it_said(seen: Cluster) -> None:
    command = Command(("sh", "-c", "read line; echo $line $MARK; exit 4"), {"MARK": "set"}, "text\n")
    with pytest.raises(
        BootFailed, match=r"node1 \(127.7.7.1\): sh -c .* failed with 4\n--- .*first-boot.log\ntext set"
    ):
        booting.run_command(command, seen.primary)


@pytest.mark.parametrize(
    ("services", "shown"),
    [(["c"], ["c"]), (["b", "c"], ["b", "c"]), (["a write"], ["a", "b"])],
)
def test_the_logs_of_those_who_ended_are_shown_or_the_most_telling(services: list[str], shown: list[str]) -> None:
    logs = [Path(f"/{name}.log") for name in "abc"]
    assert [log.stem for log in booting.telling(logs, services)] == shown


def test_scripts_among_the_files_can_be_run(tmp_path: Path) -> None:
    node = Node(1, "127.7.7.1", tmp_path / "node1")
    booting.write_files(recipe("mysql"), Cluster((node,), {"mariadb": tmp_path}, node))
    assert (node.conf / "bin" / "rsync").stat().st_mode & 0o111
    assert not (node.conf / "galera.cnf").stat().st_mode & 0o111


def test_the_addresses_of_a_subnet_are_those_of_its_nodes() -> None:
    assert subnets.hosts("127.9.8", 2) == ["127.9.8.1", "127.9.8.2"]


def test_a_subnet_with_a_taken_address_is_not_chosen() -> None:
    first = subnets.choose([], random.Random(1))
    assert subnets.choose([f"{first}.3"], random.Random(1)) != first
    assert subnets.choose(["127.0.0.1", "10.0.0.1"], random.Random(1)) == first


def test_listeners_of_a_subnet_are_seen() -> None:
    subnet = subnets.free()
    with socket.socket() as listener:
        listener.bind((f"{subnet}.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert subnets.listeners(subnet) == [f"{subnet}.1:{port}"]
        assert subnets.free() != subnet
    assert subnets.listeners(subnet) == []
