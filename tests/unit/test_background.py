"""What is done beside answering calls: threads that take part of the work, and work nobody waits for."""

import threading
import time
from collections.abc import Iterator

import pytest

from pbserver import background
from pbserver.background import Hands
from pbserver.datastore.errors import BadRequest, Timeout


@pytest.fixture
def hands() -> Iterator[Hands]:
    made = Hands()
    yield made
    made.close()


def test_results_come_in_the_order_of_the_work(hands: Hands) -> None:
    assert hands.at_once([lambda n=n: n * n for n in range(40)]) == [n * n for n in range(40)]  # type: ignore[misc]
    assert hands.at_once([]) == []


def test_things_done_at_once_meet(hands: Hands) -> None:
    barrier = threading.Barrier(3, timeout=5)
    assert sorted(hands.at_once([barrier.wait] * 3)) == [0, 1, 2]


def test_all_is_done_before_the_first_error_is_raised(hands: Hands) -> None:
    done: list[int] = []

    def work(number: int) -> None:
        if number in {2, 5}:
            raise BadRequest(f"number {number}")
        time.sleep(0.01)
        done.append(number)

    with pytest.raises(BadRequest, match="number 2"):
        hands.at_once([lambda n=n: work(n) for n in range(12)])  # type: ignore[misc]
    assert sorted(done) == [n for n in range(12) if n not in {2, 5}]


def test_work_at_once_may_itself_be_divided(hands: Hands) -> None:
    """However deep, and with more of it than there are threads."""

    def count(depth: int) -> int:
        return 1 if depth == 0 else sum(hands.at_once([lambda: count(depth - 1)] * 6))

    assert count(4) == 6**4


def test_what_is_left_for_later_is_done_though_some_of_it_fails(hands: Hands) -> None:
    done = threading.Event()

    def fail() -> None:
        raise Timeout("nobody waits for this")

    assert hands.later(fail)
    assert hands.later(done.set)
    assert done.wait(5)


def test_too_much_for_later_is_refused(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_MOST_WAITING", 3)
    made = Hands()
    go_on = threading.Event()
    assert made.later(go_on.wait)
    taken = [made.later(lambda: None) for _ in range(10)]
    go_on.set()
    made.close()
    assert taken.count(True) in {2, 3}  # the first may have been taken out by then
    assert not taken[-1]
