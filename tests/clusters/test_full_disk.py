"""One node's disk is full: the log names it, apps meet TIMEOUT at most, service goes on, and the node comes back."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from controller.local import LocalCluster
from protos import datastore_v3_pb2 as v3
from tests.clusters.checks import assert_verified
from tests.e2e.server import Server, wait_until
from tests.e2e.wire import Wire, blob, entity, key, put_request
from tests.faults.small_disk import fill, small_disk

KIND = b"Large"
BLOB_BYTES = 60_000
#: What an empty node takes, and room for some dozen entities.
DISK_MEBIBYTES = {"mysql": 230}
_DEADLINE = {"X-Google-RPC-Service-Deadline": "20"}


@pytest.fixture(params=DISK_MEBIBYTES)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes, the second with a small disk of its own."""
    directory = tmp_path / request.param
    directory.mkdir()
    disk = small_disk(directory / "node2", DISK_MEBIBYTES[request.param])
    with disk, LocalCluster.up(request.param, 3, directory) as running:
        yield running


@pytest.mark.timeout(600)
def test_a_full_disk_on_one_node_is_named_and_service_goes_on(cluster: LocalCluster, tmp_path: Path) -> None:
    full = cluster.nodes[1]
    urls = cluster.store_urls()
    with ExitStack() as stack:
        server = stack.enter_context(Server(_made(tmp_path / "server"), urls[1], workers=1))
        app = stack.enter_context(_App(server))
        app.put_more(10)
        ballast = fill(full.directory)
        app.put_until(lambda: full.host in server.errors())
        app.put_more(30)
        others = [node for node in cluster.nodes if node != full]  # they may need a moment to go on without it
        wait_until(lambda: not {each.node for each in cluster.status() if each.trouble}.intersection(others), "others")
        ballast.unlink()
        cluster.kill(full)
        cluster.start(full)
        app.put_until(lambda: "used again" in server.errors())
        refused = len(app.refused)
        app.put_more(30)
        assert len(app.refused) == refused
        assert set(app.refused) <= {v3.Error.TIMEOUT}
        app.assert_kept()
    assert_verified(urls[0])


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


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
