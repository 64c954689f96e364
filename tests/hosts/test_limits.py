"""What does not come about in its time is told, and `up` goes on when it can; a gateway on a machine of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from controller.engines import private
from tests.hosts.proofs import STORE, environment
from tests.hosts.site import ROOT, Site, site


@pytest.fixture
def engines(tmp_path: Path) -> Path:
    """A directory of engines in which FerretDB is something else."""
    private.place("ferretdb", tmp_path / "engines").mkdir(parents=True)
    return tmp_path / "engines"


@pytest.fixture
def shop(engines: Path) -> Iterator[Site]:
    with site("mongodb", ["peer", "gateway"], engines) as made:
        yield made


def put(engines: Path, script: str) -> None:
    program = private.place("ferretdb", engines) / "ferretdb"
    program.unlink(missing_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_a_service_that_does_not_come_up_is_named_with_its_log_and_up_can_be_run_again(
    shop: Site, engines: Path
) -> None:
    assert any(step.endswith("start ferretdb") for step in shop.told("plan"))
    assert shop.pids() == []
    first, second = shop.hosts

    put(engines, "echo the disk is upside down; exec sleep 1000")
    done = shop.pbdeploy("up", str(shop.layout), "--timeout", "30")
    assert done.returncode == 1
    assert f"node1 ({first.address}): ferretdb: " in done.stderr
    assert done.stderr.rstrip().endswith("the disk is upside down")
    assert "Traceback" not in done.stderr
    sleeping = shop.service(1, "ferretdb")["pid"]
    assert psutil.Process(sleeping).cmdline() == ["sleep", "1000"], "what was started can be looked at"

    put(engines, "echo the disk is missing; exit 1")
    os.kill(sleeping, 9)
    done = shop.pbdeploy("up", str(shop.layout), "--timeout", "200")
    assert done.returncode == 1
    assert re.search(rf"node1 \({first.address}\): (start ferretdb: |ferretdb: ends again and again)", done.stderr)
    assert done.stderr.rstrip().endswith("the disk is missing")

    program = private.fetch("ferretdb") / "ferretdb"
    put(engines, f'exec {program} "$@"')
    raised = shop.told("up")
    assert raised["entry_points"] == [f"{second.address}:10001"]
    app = [sys.executable, str(STORE)]
    done = subprocess.run(
        app, env=environment(raised["entry_points"][0]), capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.stdout.strip().endswith("hello 1"), done.stderr
    assert shop.told("logs", "--node", "node1", "--service", "ferretdb")["node1"]["ferretdb"]
    assert shop.told("down")["stopped"] == ["node1", "node2"]
    assert shop.pids() == []


def test_a_machine_that_cannot_be_reached_or_will_not_do_is_named_before_any_is_touched(
    shop: Site, engines: Path
) -> None:
    first, second = shop.hosts
    with first.listening(27017):
        done = shop.pbdeploy("up", str(shop.layout))
        assert done.returncode == 1
        assert f"{first.address}: port 27017, for MongoDB's protocol, is taken by " in done.stderr
    second.cut()
    done = shop.pbdeploy("up", str(shop.layout))
    assert done.returncode == 1
    assert f"pbdeploy: node2 ({second.address}): root@" in done.stderr
    assert not shop.home(1).parent.exists()
