"""What is proven of every database on several machines. A module imports these and has a fixture `shop`, a Site that is
up; they run in this order, under the load of apps that write at every entry point.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.site import ROOT, Site

__all__ = [  # noqa: RUF022 - the order in which they run
    "goes_on_from_the_one_before",
    "test_an_app_from_outside_is_served_at_every_entry_point",
    "test_status_tells_of_every_node_and_up_again_does_nothing",
    "test_a_service_that_is_killed_comes_back",
    "test_a_node_that_is_cut_off_is_reported_and_comes_back_by_itself",
    "test_a_node_is_added_under_load",
    "test_a_node_is_removed_under_load",
    "test_after_a_reboot_of_all_nodes_the_cluster_is_back_with_what_was_acknowledged",
    "test_down_leaves_nothing_running_and_keeps_the_data",
]

STORE = ROOT / "examples" / "store.py"
APP = Path(__file__).with_name("app.py")
BOOT_SECONDS = 600
#: HDFS asks the cut node's DataNode for the end of a log again and again before it asks another: over two minutes.
WITHOUT_SECONDS = 400
MORE = 10

_broken: dict[str, str] = {}  # by module: the test that has failed


@pytest.fixture(autouse=True)
def goes_on_from_the_one_before(request: pytest.FixtureRequest) -> Iterator[None]:
    """They share one cluster: for what one of them has left broken the others would wait, each for minutes."""
    module, failed = request.module.__name__, request.session.testsfailed
    if module in _broken:
        pytest.fail(f"the cluster is as {_broken[module]} has left it")
    yield
    if request.session.testsfailed > failed:
        _broken[module] = request.node.name


def environment(entry: str) -> dict[str, str]:
    host, _, port = entry.rpartition(":")
    return {**os.environ, "API_HOST": host, "API_PORT": port}


class Writer:
    """An app at one entry point that puts as long as it runs; `acknowledged`: the numbers of its entities."""

    def __init__(self, entry: str, file: Path) -> None:
        self.entry = entry
        self.name = entry.replace(":", "-").replace(".", "-")
        self._file = file
        with file.open("wb") as output, file.with_suffix(".err").open("wb") as errors:
            command = [sys.executable, str(APP), "write", self.name]
            self.process = subprocess.Popen(command, env=environment(entry), stdout=output, stderr=errors, cwd=ROOT)

    @property
    def acknowledged(self) -> list[int]:
        """A line that is not whole yet is none."""
        return [int(line) for line in self._file.read_text().split("\n")[:-1]]

    def errors(self) -> str:
        return self._file.with_suffix(".err").read_text()


@contextmanager
def writing(entries: Sequence[str], directory: Path) -> Iterator[list[Writer]]:
    writers = [Writer(entry, directory / f"writer{number}") for number, entry in enumerate(entries)]
    try:
        yield writers
    finally:
        for writer in writers:
            writer.process.kill()
            writer.process.wait()


def wait_for_more(writers: Sequence[Writer], what: str, seconds: float = 120) -> None:
    """Every writer gets some more acknowledged."""
    wanted = [len(each.acknowledged) + MORE for each in writers]
    deadline = time.monotonic() + seconds
    while any(len(each.acknowledged) < most for each, most in zip(writers, wanted, strict=True)):
        counts = [len(each.acknowledged) for each in writers]
        assert all(each.process.poll() is None for each in writers), [each.errors() for each in writers]
        assert time.monotonic() < deadline, f"{what}: only {counts} of {wanted}"
        time.sleep(0.2)


def assert_all_there(writers: Sequence[Writer], entry: str) -> None:
    """Whatever was acknowledged is read at an entry point."""
    lines = "".join(f"{each.name} {number}\n" for each in writers for number in each.acknowledged)
    assert lines
    command = [sys.executable, str(APP), "read"]
    done = subprocess.run(
        command, env=environment(entry), input=lines, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr + done.stdout


def entries_of(shop: Site) -> list[str]:
    return [f"{host.address}:10001" for host in shop.hosts]


def is_whole(status: dict[str, object]) -> bool:
    return bool(status.get("whole"))


def test_an_app_from_outside_is_served_at_every_entry_point(shop: Site) -> None:
    for number, entry in enumerate(entries_of(shop), 1):
        done = subprocess.run(
            [sys.executable, str(STORE)], env=environment(entry), capture_output=True, text=True, cwd=ROOT, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip().endswith(f"hello {number}")


def test_status_tells_of_every_node_and_up_again_does_nothing(shop: Site) -> None:
    status = shop.told("status")
    assert status["whole"]
    assert status["troubles"] == []
    assert shop.told("doctor") == []
    assert shop.told("entrypoints") == status["entry_points"]
    assert sorted(status["entry_points"]) == sorted(entries_of(shop))
    for node in status["nodes"]:
        facts = node["facts"]
        assert {each["state"] for each in facts["services"].values()} == {"RUNNING"}
        assert 10003 in facts["ports"]
        assert facts["memory_mib"] > facts["available_mib"] > 0
        assert facts["disk_mib"] > facts["free_mib"] > 0
        assert facts["engines"]
        assert facts["version"] == status["version"]
        assert node["silent_seconds"] < 30
    pids = sorted(shop.pids())
    again = shop.told("up")
    assert not again["changed"]
    assert sorted(shop.pids()) == pids
    assert shop.told("plan") == []


def test_a_service_that_is_killed_comes_back(shop: Site, tmp_path: Path) -> None:
    service = shop.database_service
    with writing(entries_of(shop), tmp_path) as writers:
        wait_for_more(writers, "before the kill")
        before = shop.service(2, service)["pid"]
        os.kill(before, signal.SIGKILL)
        shop.wait_for(
            lambda found: is_whole(found) and found["nodes"][1]["facts"]["services"][service]["pid"] != before,
            f"{service} on node2 again",
        )
        wait_for_more(writers, "after it")
    assert_all_there(writers, entries_of(shop)[1])


def test_a_node_that_is_cut_off_is_reported_and_comes_back_by_itself(shop: Site, tmp_path: Path) -> None:
    entries, host, number = entries_of(shop), shop.hosts[-1], shop.numbers[-1]
    with writing(entries, tmp_path) as writers:
        wait_for_more(writers, "before the cut")
        host.cut()
        try:
            found = shop.wait_for(lambda each: each.get("troubles"), "the silent node")
            (trouble,) = found["troubles"]
            assert (trouble["address"], trouble["what"]) == (host.address, "heartbeat")
            assert entries[-1] not in found["entry_points"], found
            doctor = shop.pbdeploy("doctor", str(shop.layout))
            assert doctor.returncode == 1
            assert f"node{number} ({host.address}): heartbeat: silent for " in doctor.stdout
            wait_for_more(writers[:-1], "at the other entry points", WITHOUT_SECONDS)
            shop.wait_for(  # while the database makes up for the node, a gateway may truly have no answers
                lambda each: sorted(each.get("entry_points", [])) == sorted(entries[:-1]), "all other entry points"
            )
        finally:
            host.heal()
        found = shop.wait_for(is_whole, "the node among the others again")
        assert sorted(found["entry_points"]) == sorted(entries)
        wait_for_more(writers, "after it")
    assert_all_there(writers, entries[-1])


def test_a_node_is_added_under_load(shop: Site, tmp_path: Path) -> None:
    new, number = shop.spare.pop(), len(shop.numbers) + 1
    with writing(entries_of(shop), tmp_path) as writers:
        wait_for_more(writers, "before it")
        added = shop.told("add-node", "--address", new.address)
        assert (added["changed"], added["node"], added["troubles"]) == (True, f"node{number}", [])
        shop.hosts.append(new)
        shop.numbers.append(number)
        assert sorted(added["entry_points"]) == sorted(entries_of(shop))
        (tmp_path / "new").mkdir()
        with writing(entries_of(shop)[-1:], tmp_path / "new") as more:
            wait_for_more([*writers, *more], "after it")
    for entry in entries_of(shop):
        assert_all_there([*writers, *more], entry)
    assert not shop.told("add-node", "--address", new.address)["changed"]


def test_a_node_is_removed_under_load(shop: Site, tmp_path: Path) -> None:
    """The second, so that the numbers of others would change if they were places in a list."""
    gone, entry = shop.hosts[1], entries_of(shop)[1]
    with writing(entries_of(shop), tmp_path) as writers:
        wait_for_more(writers, "before it")
        removed = shop.told("remove-node", "node2", "--yes", "--wipe")
        assert (removed["removed"], removed["wiped"], removed["troubles"]) == ("node2", True, [])
        del shop.hosts[1], shop.numbers[1]
        assert sorted(removed["entry_points"]) == sorted(entries_of(shop))
        assert [each["number"] for each in removed["nodes"]] == shop.numbers
        wait_for_more([each for each in writers if each.entry != entry], "after it")
    for each in entries_of(shop):
        assert_all_there(writers, each)
    assert not shop.home(2).exists()
    assert not gone.reaches(gone.address, 10001)
    refused = shop.pbdeploy("remove-node", "node1", str(shop.layout), "--yes")
    assert refused.returncode == 1
    assert "it is the first node, which has the cluster's head" in refused.stderr


def test_after_a_reboot_of_all_nodes_the_cluster_is_back_with_what_was_acknowledged(shop: Site, tmp_path: Path) -> None:
    with writing(entries_of(shop), tmp_path) as writers:
        wait_for_more(writers, "before the reboot")
        shop.reboot()
        shop.wait_for(is_whole, "the whole cluster", BOOT_SECONDS)
        wait_for_more(writers, "after it")
    for entry in entries_of(shop):
        assert_all_there(writers, entry)


def test_down_leaves_nothing_running_and_keeps_the_data(shop: Site) -> None:
    assert shop.told("down")["stopped"] == [f"node{number}" for number in shop.numbers]
    assert shop.pids() == []
    assert not any(host.reaches(host.address, port) for host in shop.hosts for port in (10001, 10003))
    assert shop.pbdeploy("status", str(shop.layout)).returncode == 1
    assert shop.told("down") == {"stopped": [], "wiped": False}
    assert all((shop.home(number) / "data").is_dir() for number in shop.numbers)
    wiped = shop.told("down", "--wipe", "--yes")
    assert wiped["wiped"]
    assert not shop.home(1).parent.exists()
