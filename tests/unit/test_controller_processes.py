"""Processes by pid and start: what is ours is ended with its children, what only has the same pid is left alone."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from controller import processes
from controller.processes import Leader

IGNORES_TERM = "trap '' TERM; echo trapped; while :; do sleep 0.1; done"
#: The first thread ends, the process does not.
OUTLIVED_BY_A_THREAD = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=[1000]).start()
ctypes.CDLL(None).pthread_exit(None)
"""
WITH_CHILD = "sleep 1000 & echo child; wait"


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str], Leader]]:
    """Starts shell text; returns once it has printed a line, or at once if it never does."""
    children = []
    leaders = []

    def start(text: str) -> Leader:
        record, log = tmp_path / f"{len(leaders)}.json", tmp_path / f"{len(leaders)}.log"
        children.append(processes.start(["sh", "-c", text], record, log, tmp_path, {"MARK": "set"}))
        leader = Leader.read(record)
        assert leader is not None
        leaders.append(leader)
        if "echo" in text:
            wait_until(log.read_text)
        return leader

    yield start
    for leader in leaders:
        processes.kill(leader)
    for child in children:
        child.wait()


def test_a_service_has_its_own_session_directory_environment_and_log(
    started: Callable[[str], Leader], tmp_path: Path
) -> None:
    leader = started('echo "$MARK in $PWD"; exec sleep 1000')
    assert (tmp_path / "0.log").read_text() == f"set in {tmp_path}\n"
    assert os.getsid(leader.pid) == leader.pid
    assert processes.leads(leader)


def test_nothing_was_started_where_there_is_no_record(tmp_path: Path) -> None:
    assert Leader.read(tmp_path / "none.json") is None


def test_children_are_found_and_killed_after_their_leader_died(started: Callable[[str], Leader]) -> None:
    leader = started(WITH_CHILD)
    os.kill(leader.pid, signal.SIGKILL)
    wait_until(lambda: not processes.leads(leader))
    assert len(processes.members(leader)) == 1
    processes.kill(leader)
    assert processes.members(leader) == []


def test_a_process_lives_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    program = tmp_path / "outlived.py"
    program.write_text(OUTLIVED_BY_A_THREAD)
    record = tmp_path / "record.json"
    child = processes.start([sys.executable, str(program)], record, tmp_path / "log", tmp_path, {})
    leader = Leader.read(record)
    assert leader is not None
    wait_until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    assert processes.leads(leader)
    assert len(processes.members(leader)) == 1
    processes.stop({leader: 0})
    assert processes.members(leader) == []
    child.wait()


def test_a_process_that_only_has_the_same_pid_is_not_ours(started: Callable[[str], Leader]) -> None:
    leader = started("exec sleep 1000")
    former = Leader(leader.pid, "an earlier start")
    assert processes.members(former) == []
    processes.stop({former: 0})
    processes.kill(former)
    assert processes.leads(leader)


def test_who_obeys_is_not_killed_and_who_does_not_is(started: Callable[[str], Leader], tmp_path: Path) -> None:
    obeys = started("trap 'echo bye; exit' TERM; echo hello; while :; do sleep 0.1; done")
    ignores = started(IGNORES_TERM)
    begun = time.monotonic()
    processes.stop({obeys: 10, ignores: 1})
    assert 1 <= time.monotonic() - begun < 10
    assert (tmp_path / "0.log").read_text() == "hello\nbye\n"
    assert processes.members(obeys) == processes.members(ignores) == []


def test_a_frozen_session_does_nothing_until_it_is_thawed(started: Callable[[str], Leader], tmp_path: Path) -> None:
    leader = started("while :; do echo tick; done")
    processes.freeze(leader)
    assert {process.status() for process in processes.members(leader)} == {psutil.STATUS_STOPPED}
    size = (tmp_path / "0.log").stat().st_size
    time.sleep(0.1)
    assert (tmp_path / "0.log").stat().st_size == size
    processes.thaw(leader)
    wait_until(lambda: (tmp_path / "0.log").stat().st_size > size)
