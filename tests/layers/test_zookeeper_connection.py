"""ZookeeperStore when answers are lost, sessions end, and stores are closed."""

import os
import threading
import time

import pytest

from adapters.build import open_store
from adapters.contract import ABSENT, Check, OrderedStore
from adapters.errors import Applied, Conflict, Unavailable, Unsupported
from adapters.layers import znodes
from tests import zookeeper
from tests.layers.proxy import Proxy
from tests.layers.rows import KEY, LONG, OTHER, Meanwhile, Open, broken_off, get, intents, put, soon, swap


def through(proxy: Proxy, where: str) -> str:
    return proxy.where + where.removeprefix(zookeeper.hosts())


# Lost answers


@pytest.mark.parametrize("lost", ["lose_request", "lose_answer"])
@pytest.mark.parametrize("value", [b"two", LONG])
def test_a_set_whose_answer_is_lost_is_settled_by_its_uid(
    opened: Open, database: OrderedStore, proxy: Proxy, where: str, lost: str, value: bytes
) -> None:
    one, two = opened(at=through(proxy, where)), opened()
    put(one, b"one")
    setattr(proxy, lost, [lambda: None])
    swap(one, b"one", value)
    assert get(two, settle=True) == value
    put(two, b"three")
    with pytest.raises(Conflict):
        swap(one, value, b"four")
    assert intents(database) == 0


def test_of_lost_requests_the_one_that_came_too_late_is_a_conflict(opened: Open, proxy: Proxy, where: str) -> None:
    one, two = opened(at=through(proxy, where)), opened()
    put(one, b"one")
    proxy.lose_request = [lambda: put(two, b"faster")]
    with pytest.raises(Conflict) as raised:
        swap(one, b"one", b"two")
    assert raised.value.current == b"faster"
    proxy.lose_request = [lambda: put(two, b"neighbour", OTHER)]
    swap(one, b"faster", b"three")
    assert get(two) == b"three", "only the bucket had changed"


@pytest.mark.parametrize(("lost", "found"), [("lose_request", b"faster"), ("lose_answer", b"faster")])
def test_after_several_changes_of_others_the_outcome_is_unknown(
    opened: Open, proxy: Proxy, where: str, lost: str, found: bytes
) -> None:
    one, two = opened(at=through(proxy, where)), opened()
    put(one, b"one")

    def others() -> None:
        for value in (b"fast", b"faster"):
            put(two, value)

    setattr(proxy, lost, [others])
    broken_off(lambda: swap(one, b"one", b"two"))
    assert get(one, settle=True) == found
    swap(one, found, b"on")
    assert get(two, settle=True) == b"on"


def test_an_expired_session_is_replaced(
    opened: Open, proxy: Proxy, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(znodes, "SESSION_SECONDS", 2.0)
    store = opened(at=through(proxy, where))
    put(store, b"one")
    session = store._znodes._client.client_id
    proxy.refusing = True
    proxy.cut()
    with pytest.raises(Unavailable, match="no connection within"):
        store.read([KEY], deadline=soon(3.5), settle=True)
    with pytest.raises(Unavailable, match="no connection within") as raised:
        swap(store, b"one", b"two", 0.1)
    assert raised.value.applied is Applied.NO
    proxy.refusing = False
    swap(store, b"one", b"two")
    assert get(store, settle=True) == b"two"
    assert store._znodes._client.client_id != session


# The connection


def test_a_zookeeper_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(znodes, "CONNECT_SECONDS", 0.3)
    with pytest.raises(Unavailable, match=r"zookeeper 127.0.0.1:1/x: no connection within 0.3 s"):
        open_store("weak:?versions=yes&compare_and_set=no&zookeeper=127.0.0.1:1/x")


def test_a_closed_store_lets_go_of_those_who_wait(opened: Open, proxy: Proxy, where: str) -> None:
    store = opened(at=through(proxy, where))
    proxy.refusing = True
    proxy.cut()
    closing = threading.Timer(0.3, store.close)
    closing.start()
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="closed"):
        put(store, b"one")
    assert time.monotonic() - begun < 10
    closing.join(30)


def test_a_forked_child_is_told_to_open_its_own(opened: Open) -> None:
    store = opened()
    pid = os.fork()
    if pid == 0:
        try:
            put(store, b"child")
        except Unsupported as error:
            store._znodes.close()
            os._exit(0 if "must open its own" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    put(store, b"parent")


def test_a_bucket_that_is_held_keeps_the_deadline(opened: Open, meanwhile: Meanwhile) -> None:
    store = opened(meanwhile)
    holds, goes_on = threading.Event(), threading.Event()
    meanwhile.before_writes = [lambda: holds.set() or goes_on.wait(30)]  # type: ignore[func-returns-value]
    holder = threading.Thread(target=put, args=(store, b"one"))
    holder.start()
    assert holds.wait(30)
    with pytest.raises(Unavailable, match="same bucket") as raised:
        store.write([Check(KEY, ABSENT)], deadline=soon(0.1))
    assert raised.value.applied is Applied.NO
    goes_on.set()
    holder.join(30)
    assert get(store) == b"one"
