"""The disk of one node is full: apps meet TIMEOUT at most, service goes on, and the node comes back (proofs.py)."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from controller.local import LocalCluster
from protos import datastore_v3_pb2 as v3
from tests.clusters.checks import assert_verified
from tests.e2e.server import Server, wait_until
from tests.e2e.wire import Wire, blob, entity, key, put_request
from tests.faults.small_disk import NOT_PERMITTED, full

KIND = b"Large"
BLOB_BYTES = 60_000
MORE = 30
#: Whose full node PBServer itself meets. HDFS knows without it which DataNodes have no room.
NAMED = frozenset({"cassandra", "mysql"})
_DEADLINE = {"X-Google-RPC-Service-Deadline": "20"}


@pytest.mark.timeout(600)
def test_a_full_disk_on_one_node_is_named_and_service_goes_on(
    cluster: LocalCluster, entry_points: list[str], tmp_path: Path
) -> None:
    """The server is the one at that node. The node is started again when there is room, as it may have ended."""
    node = cluster.nodes[1]
    if not node.directory.is_mount():
        pytest.skip(NOT_PERMITTED)
    with ExitStack() as stack:
        server = stack.enter_context(Server(tmp_path, entry_points[1], workers=1))
        app = stack.enter_context(_App(server))
        app.put_more(MORE)
        with full(node.directory):
            if cluster.name in NAMED:
                app.put_until(lambda: node.host in server.errors())
            app.put_more(MORE)
            others = {each for each in cluster.nodes if each != node}  # they may need a moment to go on without it
            wait_until(lambda: others.isdisjoint(each.node for each in cluster.status() if each.trouble), "others")
        cluster.kill(node)
        cluster.start(node)
        app.put_more(MORE)
        refused = len(app.refused)
        app.put_more(MORE)
        assert len(app.refused) == refused
        assert set(app.refused) <= {v3.Error.TIMEOUT}
        app.assert_kept()
    assert_verified(entry_points[0])


class _App(Wire):
    """Puts large entities one after the other, and remembers what was acknowledged and what refused."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.port)
        self.acknowledged: list[int] = []
        self.refused: list[int] = []
        self._numbers = count(1)

    def __enter__(self) -> "_App":
        return self

    def put_more(self, count: int) -> None:
        """Until so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        self.put_until(lambda: len(self.acknowledged) >= wanted)

    def put_until(self, holds: Callable[[], object]) -> None:
        wait_until(lambda: self._put(next(self._numbers)) or holds(), "the puts", 120)

    def _put(self, number: int) -> None:
        large = blob(entity(key(KIND, number), number=number), b"blob", os.urandom(BLOB_BYTES))
        reply = self.reply("Put", put_request(large), **_DEADLINE)
        assert not reply.HasField("rpc_error"), reply.rpc_error
        if reply.HasField("application_error"):
            self.refused.append(reply.application_error.code)
        else:
            self.acknowledged.append(number)

    def assert_kept(self) -> None:
        """Everything acknowledged is there."""
        for number in self.acknowledged:
            (found,) = self.get(key(KIND, number))
            assert found is not None
            assert found.property[0].value.int64_value == number
