"""What the workloads send, read back from the wire."""

from collections import Counter

import pytest

from bench.calls import Calls
from bench.drive import shares
from bench.workloads import RECORD_BYTES, WORKLOADS, Loading, Records, calls, name
from protos import datastore_v3_pb2 as v3
from protos import remote_api_pb2 as remote_api
from protos.entity_pb2 import EntityProto

COUNT = 50
NO_ANSWER = remote_api.Response(response=b"").SerializeToString()


def records(*, latest: bool = False, first: int = COUNT, seed: int = 1) -> Records:
    return Records(b"Kind", COUNT, first=first, latest=latest, seed=seed)


def sent(data: bytes | None) -> remote_api.Request:
    assert data is not None
    head, _, body = data.partition(b"\r\n\r\n")
    assert int(head.partition(b"Content-Length: ")[2]) == len(body)
    return remote_api.Request.FromString(body)


def names_of(asked: remote_api.Request) -> list[bytes]:
    if asked.method == b"Get":
        return [key.path.element[0].name for key in v3.GetRequest.FromString(asked.request).key]
    entities = [EntityProto.FromString(each) for each in v3.PutRequest.FromString(asked.request).entity]
    for each in entities:
        assert each.entity_group.element[0] == each.key.path.element[0]
    return [each.key.path.element[0].name for each in entities]


def test_loading_puts_every_record_once_with_ten_fields_of_a_hundred_bytes() -> None:
    loading = [Loading(records(), range(number, COUNT, 3)) for number in range(3)]
    found = []
    for each in loading:
        while (data := each.begin(0)) is not None:
            asked = sent(data)
            found += names_of(asked)
            (entity,) = v3.PutRequest.FromString(asked.request).entity
            values = [field.value.string_value for field in EntityProto.FromString(entity).raw_property]
            assert [len(value) for value in values] == [100] * 10
    assert sorted(found) == sorted(name(number) for number in range(COUNT))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_operations_come_in_the_workload_s_shares_and_name_records_that_are_there(workload: str) -> None:
    source = calls(WORKLOADS[workload], records(latest=WORKLOADS[workload].latest), seed=1)
    there = {name(number) for number in range(COUNT)}
    found: Counter[str] = Counter()
    for _ in range(2000):
        asked = sent(source.begin(0))
        kind = source.part(0).name
        found[kind] += 1
        if kind == "insert":
            assert not there.intersection(names_of(asked))
            there.update(names_of(asked))
        elif kind != "scan":
            assert there.issuperset(names_of(asked))
        finish(source)
    wanted = WORKLOADS[workload].shares
    assert {kind: round(count / 2000, 1) for kind, count in found.items()} == {
        kind: pytest.approx(share / 100, abs=0.06) for kind, share in wanted.items()
    }


def finish(source: Calls) -> None:
    while source.go_on(0, NO_ANSWER) is not None:
        pass


def test_a_read_modify_write_puts_what_it_has_read() -> None:
    source = calls(WORKLOADS["F"], records(), seed=2)
    while True:
        asked = sent(source.begin(0))
        if source.part(0).name == "read-modify-write":
            break
    assert names_of(sent(source.go_on(0, NO_ANSWER))) == names_of(asked)
    assert source.go_on(0, NO_ANSWER) is None
    assert source.part(0).least_bytes == RECORD_BYTES


def test_the_newest_record_is_the_most_read_one() -> None:
    these = records(latest=True)
    these.inserted(these.new())
    ((popular, _),) = Counter(these.choose() for _ in range(1000)).most_common(1)
    assert popular == name(COUNT)


@pytest.mark.parametrize(("total", "parts"), [(9, 2), (3, 3), (10, 4), (1, 1)])
def test_shares_are_whole_near_equal_and_complete(total: int, parts: int) -> None:
    found = shares(total, parts)
    assert sum(found) == total
    assert max(found) - min(found) <= 1
