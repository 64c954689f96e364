"""`pbserver indexes`: on a store that a server is serving, and on one that nobody serves."""

import subprocess
import sys
from pathlib import Path

import pytest

from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import CompositeIndex, EntityProto
from tests.e2e.server import ROOT, Server, wait_until
from tests.e2e.wire import APP, Wire, entity, key

INDEX_YAML = """
indexes:
# how it is read
- kind: Book
  properties:
  - name: shelf
  - name: pages
    direction: desc
- kind: Book
  ancestor: yes
  properties:
  - name: pages
"""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pbserver", "indexes", *map(str, arguments), "--app", APP.decode()]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "index.yaml"
    path.write_text(INDEX_YAML)
    return path


def books(count: int) -> list[EntityProto]:
    return [entity(key(b"Book", number), shelf=number % 3, pages=number % 7) for number in range(1, count + 1)]


def ordered(wire: Wire) -> list[int]:
    query = v3.Query(app=APP, kind=b"Book", count=1000)
    query.filter.add(op=v3.Query.Filter.EQUAL).property.add(name=b"shelf", multiple=False).value.int64_value = 1
    query.order.add(property=b"pages", direction=v3.Query.Order.DESCENDING)
    result = wire.call("RunQuery", query)
    return [number_of(each) for each in result.result]


def number_of(data: bytes) -> int:
    return EntityProto.FromString(data).key.path.element[-1].id


def test_indexes_are_applied_listed_and_dropped_while_a_server_runs(
    production_server: Server, tmp_path: Path, file: Path
) -> None:
    store = f"lmdb:{tmp_path / 'store'}"
    with Wire(production_server.port) as wire:
        wire.put(*books(300))
        before = ordered(wire)
        applied = run("apply", file, "--store", store)
        assert applied.returncode == 0, applied.stderr
        assert applied.stdout.count("created: index") == 2
        states = [each.state for each in wire.call("GetIndices", v3.GetIndicesRequest(app_id=APP)).index]
        assert states == [CompositeIndex.READ_WRITE] * 2
        assert ordered(wire) == before
        assert len(before) == 100
        again = run("apply", file, "--store", store)
        assert again.stdout.count("exists: index") == 2
        assert run("list", "--yaml", "--store", store).stdout.count("- kind: Book") == 2
        dropped = run("drop", "1", "--store", store)
        assert dropped.returncode == 0, dropped.stderr
        assert ordered(wire) == before
        listed = run("list", "--store", store).stdout
        assert "serving" in listed
        assert "shelf" not in listed


def test_a_running_server_builds_what_was_only_created(production_server: Server, tmp_path: Path, file: Path) -> None:
    with Wire(production_server.port) as wire:
        wire.put(*books(50))
        assert run("apply", file, "--no-wait", "--store", f"lmdb:{tmp_path / 'store'}").returncode == 0

        def serving() -> bool:
            found = wire.call("GetIndices", v3.GetIndicesRequest(app_id=APP)).index
            return [each.state for each in found] == [CompositeIndex.READ_WRITE] * 2

        wait_until(serving, "both indexes to serve")


def test_on_a_store_nobody_serves(tmp_path: Path, file: Path) -> None:
    store = f"lmdb:{tmp_path / 'fresh'}"
    assert run("apply", file, "--store", store).returncode == 0
    file.write_text("")
    left = run("apply", file, "--store", store)
    assert left.stdout.count("not in the file: index") == 2
    assert left.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["apply", "there-is-none.yaml"], "there-is-none.yaml"),
        (["apply", "setup.py"], "setup.py"),
        (["drop", "7"], "Index does not exist. (id 7)"),
        (["list", "--store", "memory:"], "lives inside the server's process"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    store = [] if "--store" in arguments else ["--store", f"lmdb:{tmp_path / 'store'}"]
    refused = run(*arguments, *store)
    assert refused.returncode == 1
    assert complaint in refused.stderr
    assert "Traceback" not in refused.stderr
