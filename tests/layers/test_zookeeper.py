"""ZookeeperStore over a real ZooKeeper: races of several processes, processes that stop between two steps, long
values, and what belongs together. Each store stands for a process.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest

from adapters.conformance.matrix import AtOnce
from adapters.contract import ABSENT, ANY, Address, KeyRange, OrderedStore, Write
from adapters.errors import Applied, Conflict, Corrupt, Unavailable
from adapters.layers import changes
from adapters.layers import zookeeper as layer
from tests import zookeeper
from tests.layers.rows import (
    KEY,
    LONG,
    OTHER,
    Meanwhile,
    Open,
    broken_off,
    crash,
    get,
    intents,
    put,
    soon,
    swap,
    weak,
)

# Races


def test_of_64_racers_in_8_processes_exactly_one_wins(opened: Open, at_once: AtOnce) -> None:
    at = zookeeper.place(buckets=16)
    stores = [opened(at=at) for _ in range(8)]
    put(stores[0], b"base")
    results = at_once(64, lambda number: swap(stores[number % 8], b"base", b"%d" % number))
    winners = [number for number, result in enumerate(results) if result is None]
    assert len(winners) == 1
    assert all(isinstance(result, Conflict) for result in results if result)
    assert get(stores[5]) == b"%d" % winners[0]


@pytest.mark.parametrize("options", ["&shuffle=3", "&shuffle=5&fail=20"])
def test_processes_that_count_on_rows_of_one_bucket_lose_nothing(opened: Open, at_once: AtOnce, options: str) -> None:
    database = weak(options)
    stores = [opened(database) for _ in range(4)]
    unknown = {KEY: 0, OTHER: 0}

    def settled(number: int, address: Address) -> int:
        while True:
            try:
                return int(get(stores[number % 4], address, settle=True) or 0)
            except Unavailable:
                continue

    def count(number: int) -> None:
        address = (KEY, OTHER)[number % 2]
        left = 20
        while left:
            now = settled(number, address)
            try:
                change = Write(address, b"%d" % (now + 1), b"%d" % now if now else ABSENT)
                stores[number % 4].write([change], deadline=soon())
                left -= 1
            except Conflict as conflict:
                assert conflict.current != b"%d" % now
            except Unavailable as error:
                if error.applied is Applied.UNKNOWN:
                    unknown[address] += 1
                    left -= 1

    assert at_once(8, count) == [None] * 8
    for address, some in unknown.items():
        assert 80 - some <= settled(0, address) <= 80
    assert bool(sum(unknown.values())) == ("fail" in options)


# A process that stops between two steps


@pytest.mark.parametrize("value", [b"two", None, LONG])
def test_a_change_that_is_only_in_zookeeper_is_brought_to_the_database(
    opened: Open, meanwhile: Meanwhile, database: OrderedStore, value: bytes | None
) -> None:
    one, two, three = opened(meanwhile), opened(), opened()
    put(three, b"one")
    assert get(one, settle=True) == b"one"
    steps = 1 if value == LONG else 0  # its intent comes first
    meanwhile.before_writes = [*[lambda: None] * steps, crash]
    broken_off(lambda: swap(one, b"one", value))
    assert get(database) == b"one", "it got as far as ZooKeeper"
    for expected in (b"never", b"one"):
        with pytest.raises(Conflict) as raised:
            swap(three, expected, b"three")
        assert raised.value.current == value, "three remembered the bucket as it was"
    assert get(two, settle=True) == get(one, settle=True) == value


def test_a_settled_read_finds_what_no_other_call_has_touched(opened: Open, meanwhile: Meanwhile) -> None:
    one, two = opened(meanwhile), opened()
    put(one, b"one")
    meanwhile.before_writes = [crash]
    broken_off(lambda: swap(one, b"one", b"two"))
    assert get(two) == b"one"
    assert get(two, settle=True) == b"two"


@pytest.mark.parametrize("paused", [b"paused", None, LONG])
@pytest.mark.parametrize("final", [b"final", None])
def test_a_writer_paused_after_its_commit_point_undoes_nothing(
    opened: Open, meanwhile: Meanwhile, paused: bytes | None, final: bytes | None
) -> None:
    one, two = opened(meanwhile), opened()
    put(one, b"one")

    def others() -> None:
        assert get(two, settle=True) == paused
        put(two, b"between")
        put(two, final)
        put(two, b"neighbour", OTHER)

    meanwhile.before_writes = [*[lambda: None] * (paused == LONG), others]
    swap(one, b"one", paused)
    assert get(one) == get(two) == get(two, settle=True) == final
    assert get(one, OTHER) == b"neighbour"
    one.write([Write(KEY, b"on", final or ABSENT)], deadline=soon())
    assert get(two, settle=True) == b"on"


def test_a_reader_paused_while_it_brings_a_change_to_the_database_undoes_nothing(
    opened: Open, meanwhile: Meanwhile
) -> None:
    crashing = Meanwhile(meanwhile)  # type: ignore[arg-type]
    one, paused, others = opened(crashing), opened(meanwhile), opened()
    put(one, b"one")
    crashing.before_writes = [crash]
    broken_off(lambda: swap(one, b"one", b"two"))
    meanwhile.before_writes = [lambda: put(others, None)]
    assert get(paused, settle=True) is None
    assert get(others, settle=True) is None


def test_whoever_was_paused_past_half_of_the_horizon_writes_nothing(
    opened: Open, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = opened(meanwhile), opened()
    put(store, b"one")
    (bucket,) = store._buckets.values()
    monkeypatch.setattr(bucket, "_half_horizon", 0.0)
    broken_off(lambda: swap(store, b"one", b"two"))
    assert get(store) == b"one"
    assert get(other, settle=True) == b"two"


# Long values


def test_an_intent_stays_until_its_bucket_moves_on(opened: Open, database: OrderedStore) -> None:
    one, two = opened(), opened()
    put(one, LONG)
    one.write([Write(OTHER, LONG * 2), Write(KEY, LONG + b"2")], deadline=soon())
    assert intents(database) == 2
    assert get(two, settle=True) == LONG + b"2"
    assert get(two, OTHER) == LONG * 2
    put(two, b"short")
    assert intents(database) == 0


def test_an_intent_that_is_gone_since_its_bucket_moved_on_is_not_missed(opened: Open, meanwhile: Meanwhile) -> None:
    one, two, paused = opened(), opened(), opened(meanwhile)
    put(one, LONG)
    meanwhile.before_reads = [lambda: put(two, b"on")]
    assert get(paused, settle=True) == b"on"


def test_an_intent_that_is_gone_though_its_bucket_leads_to_it_is_corrupt(opened: Open, database: OrderedStore) -> None:
    put(opened(), LONG)
    scope = changes.intent_scope(KEY.scope)
    ((key, _),) = database.scan(KEY.table, scope, KeyRange(), limit=2, deadline=soon())
    uid = changes.intent_of(key).uid
    database.write(changes.intent_deletes([Address(KEY.table, scope, uid, key)]), deadline=soon())
    with pytest.raises(Corrupt, match="a long value that the last change of buckets/0 leads to is missing"):
        get(opened(), settle=True)


def test_a_losers_intent_is_deleted(opened: Open, meanwhile: Meanwhile, database: OrderedStore) -> None:
    one, two = opened(meanwhile), opened()
    put(one, b"one")
    meanwhile.before_writes = [lambda: put(two, b"faster")]
    with pytest.raises(Conflict):
        swap(one, b"one", LONG)
    assert intents(database) == 0


def test_intents_left_by_crashes_are_swept(
    opened: Open, meanwhile: Meanwhile, database: OrderedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = opened(meanwhile), opened()
    put(one, b"one")
    late: list[Callable[[], None]] = []

    def pause_the_set(name: str, *arguments: Any) -> int | None:
        late.append(lambda: swap_znode(name, *arguments))
        raise Unavailable("stopped right before the set")

    swap_znode = one._znodes.swap
    monkeypatch.setattr(one._znodes, "swap", pause_the_set)
    with pytest.raises(Unavailable):
        swap(one, b"one", LONG)
    monkeypatch.undo()
    assert intents(database) == 1
    assert two.sweep(KEY.table, KEY.scope, deadline=soon()) == 0, "it is too young"
    monkeypatch.setattr(layer, "SWEPT_AFTER_SECONDS", -3600.0)
    assert two.sweep(KEY.table, b"another\x00", deadline=soon()) == 0
    assert two.sweep(KEY.table, KEY.scope, deadline=soon()) == 1
    assert late[0]() is None, "the paused set finds the bucket moved on"
    assert get(one, settle=True) == b"one"
    meanwhile.before_writes = [lambda: None, crash]
    broken_off(lambda: swap(one, b"one", LONG))
    assert two.sweep(KEY.table, KEY.scope, deadline=soon()) == 0, "the bucket leads to it"
    assert get(database) == LONG
    meanwhile.before_writes = [lambda: None, lambda: None, crash]
    put(one, b"on")
    assert intents(database) == 1, "deleting it failed"
    assert two.sweep(KEY.table, KEY.scope, deadline=soon()) == 1
    assert intents(database) == 0


# What belongs together


def test_rows_without_version_outdo_rows_with_one(opened: Open) -> None:
    store = opened()
    store.write([Write(KEY, b"clock", ANY, int(time.time() * 1_000_000))], deadline=soon())
    put(store, None)
    assert get(store) is None


def test_zookeeper_without_its_data_is_refused(opened: Open, where: str) -> None:
    store = opened()
    put(store, b"one")
    store._znodes._client.delete(where.removeprefix(zookeeper.hosts()), recursive=True)
    with pytest.raises(Corrupt, match="is gone"):
        swap(store, b"one", b"two")
    with pytest.raises(Corrupt, match="is gone"):
        get(store, settle=True)
    with pytest.raises(Corrupt, match="whose data is not at"):
        opened()
    assert get(store) == b"one"


def test_another_or_an_emptied_database_is_refused(opened: Open, database: OrderedStore) -> None:
    put(opened(), b"one")
    with pytest.raises(Corrupt, match="that of another database, or this one has lost its rows"):
        opened(weak())
    database.drop_tables()
    with pytest.raises(Corrupt, match="that of another database, or this one has lost its rows"):
        opened()


def test_what_a_crash_leaves_of_the_first_use_or_of_dropping_all_is_completed(
    opened: Open, meanwhile: Meanwhile, database: OrderedStore
) -> None:
    at = zookeeper.unused_place()
    meanwhile.before_writes = [crash]
    with pytest.raises(Unavailable):
        opened(meanwhile, at)
    store = opened(meanwhile, at)
    put(store, b"one")
    meanwhile.before_writes = [crash]
    with pytest.raises(Unavailable):
        store.drop_tables()
    meanwhile.before_writes = [crash]
    broken_off(lambda: put(store, b"one more"))
    store.drop_tables()
    again = opened(at=at)
    assert get(again, settle=True) is None, "what was only in ZooKeeper is dropped too"
    put(again, b"two")
    assert get(store, settle=True) == b"two"


def test_many_processes_begin_at_once(opened: Open, at_once: AtOnce) -> None:
    at = zookeeper.unused_place()
    stores: list[Any] = at_once(8, lambda _: opened(at=at))
    assert len({store._layout for store in stores}) == 1
    at_once(8, lambda number: put(stores[number], b"%d" % number, KEY._replace(key=b"%d" % number)))
    assert [get(stores[0], KEY._replace(key=b"%d" % number)) for number in range(8)] == [b"%d" % n for n in range(8)]
