"""What every engine's tests look at."""

from pathlib import Path

import psutil

from controller import booting, processes
from controller.local import LocalCluster
from controller.processes import Leader

ROOT = Path(__file__).parents[2]


def pids(cluster: LocalCluster) -> list[int]:
    """Of all processes of the cluster, children of the databases included."""
    records = [record for node in cluster.nodes for record in booting.records(node)]
    leaders = [leader for record in records if (leader := Leader.read(record)) is not None]
    return sorted(process.pid for leader in leaders for process in processes.members(leader))


def assert_ready(cluster: LocalCluster) -> None:
    """Every node serves, and nothing of it listens outside the cluster's own addresses and loopback."""
    assert [status.trouble for status in cluster.status()] == [""] * len(cluster.nodes)
    open_at = {
        connection.laddr.ip
        for pid in pids(cluster)
        for connection in psutil.Process(pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert open_at
    assert [ip for ip in open_at if not ip.removeprefix("::ffff:").startswith("127.")] == []


def assert_gone(cluster: LocalCluster) -> None:
    assert pids(cluster) == []
    assert cluster.listeners() == []


def kill_everything(cluster: LocalCluster) -> None:
    """kill -9 of every process at once, behind the runner's back; returns when they are gone."""
    victims = [psutil.Process(pid) for pid in pids(cluster)]
    for victim in victims:
        victim.kill()
    psutil.wait_procs(victims, timeout=10)
