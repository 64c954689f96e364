"""What is proven of a database's ZooKeeper. A module imports these and has a fixture `shop`, a Site that is up and of
which several nodes are the quorum.
"""

import os
import signal
from pathlib import Path

from tests.hosts.proofs import assert_all_there, entries_of, is_whole, wait_for_more, writing
from tests.hosts.site import Site

__all__ = [  # noqa: RUF022 - the order in which they run
    "test_a_quorum_goes_on_without_one_zookeeper_which_comes_back",
    "test_a_node_of_the_quorum_stays",
]


def test_a_quorum_goes_on_without_one_zookeeper_which_comes_back(shop: Site, tmp_path: Path) -> None:
    voter = shop.voters[1]
    with writing(entries_of(shop), tmp_path) as writers:
        wait_for_more(writers, "before the kill")
        before = shop.service(voter, "zookeeper")["pid"]
        os.kill(before, signal.SIGKILL)
        wait_for_more(writers, "after it")
        shop.wait_for(
            lambda found: is_whole(found) and shop.service(voter, "zookeeper")["pid"] != before,
            f"zookeeper on node{voter} again",
        )
    assert_all_there(writers, entries_of(shop)[1])


def test_a_node_of_the_quorum_stays(shop: Site) -> None:
    before, pids = shop.layout.read_text(), sorted(shop.pids())
    voter = shop.voters[1]
    refused = shop.pbdeploy("remove-node", f"node{voter}", str(shop.layout), "--yes")
    assert refused.returncode == 1
    why = "it has the role zookeeper, and the quorum of a cluster stays as it was founded"
    assert f"{shop.hosts[voter - 1].address} cannot be removed: {why}" in refused.stderr
    assert shop.layout.read_text() == before
    assert sorted(shop.pids()) == pids
    assert shop.told("status")["whole"]
