"""HBase on HDFS on four machines: the first has the masters, all but the second are ZooKeeper's quorum."""

from collections.abc import Iterator

import pytest

from tests.hosts.keepers import *  # noqa: F403
from tests.hosts.proofs import *  # noqa: F403 - the last of them is `down`
from tests.hosts.site import Site, site


@pytest.fixture(scope="module")
def shop() -> Iterator[Site]:
    roles = [["master", "zookeeper"], "slave", ["slave", "zookeeper"], ["slave", "zookeeper"]]
    with site("hbase", roles, spare=1) as made:
        made.raise_()
        yield made
