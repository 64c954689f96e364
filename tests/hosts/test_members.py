"""A gateway on a machine of its own comes and goes; what was broken off goes on."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from controller import layout
from deploy import layout_file
from tests.hosts.proofs import STORE, environment
from tests.hosts.site import ROOT, Site, site


@pytest.fixture(scope="module")
def shop() -> Iterator[Site]:
    with site("mongodb", ["peer"], spare=1) as made:
        made.raise_()
        yield made


def test_a_machine_that_does_not_answer_is_not_written_down(shop: Site) -> None:
    before, new = shop.layout.read_text(), shop.spare[0]
    new.cut()
    try:
        done = shop.pbdeploy("add-node", "--address", new.address, "--role", "gateway", str(shop.layout))
    finally:
        new.heal()
    assert done.returncode == 1
    assert f"node2 ({new.address}): root@{new.address} port 2222: " in done.stderr
    assert shop.layout.read_text() == before
    assert shop.told("status")["whole"]


def test_a_gateway_is_added_and_serves(shop: Site) -> None:
    new = shop.spare[0]
    added = shop.told("add-node", "--address", new.address, "--role", "gateway")
    assert added["node"] == "node2"
    assert added["entry_points"] == [f"{shop.hosts[0].address}:10001", f"{new.address}:10001"]
    app = [sys.executable, str(STORE)]
    entry = environment(f"{new.address}:10001")
    done = subprocess.run(app, env=entry, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout.strip().endswith("hello 1"), done.stderr
    refused = shop.pbdeploy("add-node", "--address", "10.0.0.9", "--role", "peer", str(shop.layout))
    assert refused.returncode == 1
    assert "2 nodes keep data; mongodb is run on up to 1" in refused.stderr


def test_up_ends_a_removal_that_was_broken_off(shop: Site) -> None:
    new, found = shop.spare[0], layout.read(shop.layout)
    shop.layout.write_text(layout_file.with_leaving(shop.layout.read_text(), found, new.address))
    assert f"node2 ({new.address}): give up its data, stop, be no node any more" in shop.told("plan")
    raised = shop.told("up")
    assert raised["entry_points"] == [f"{shop.hosts[0].address}:10001"]
    assert [each["address"] for each in raised["nodes"]] == [shop.hosts[0].address]
    assert list(layout.read(shop.layout).numbers.values()) == [1]
    assert len(new.pids()) == 1, "its sshd"
    assert shop.home(2).is_dir()
    assert (shop.home(2) / "agent" / "secret").read_text() == ""
    assert not shop.told("up")["changed"]


def test_a_node_is_not_put_where_another_was(shop: Site) -> None:
    arguments = ("add-node", "--address", shop.spare[0].address, "--role", "gateway", str(shop.layout))
    refused = shop.pbdeploy(*arguments)
    assert refused.returncode == 1
    assert f"{shop.home(2)} is of a node that was removed from the cluster" in refused.stderr
