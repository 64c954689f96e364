"""Histories with one anomaly planted in each, which is found under its name; and right ones, which pass.

Time goes on by 10 with each line, unless a line says when: `at=(start, end)`. Lines with the same time overlap.
"""

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.isolation import history as histories
from tests.isolation.anomalies import Kind
from tests.isolation.checker import check
from tests.isolation.facts import collect
from tests.isolation.history import History, How, Outcome, Read, Transaction, Write
from tests.isolation.witness import objections
from tests.isolation.workload import broken_promises

TOGETHER = (0, 1000)  # overlaps with everything that begins before 1000
FAIL, UNKNOWN = Outcome.FAIL, Outcome.UNKNOWN


def did(*steps: Read | Write, at: tuple[int, int] = TOGETHER, outcome: Outcome = Outcome.OK) -> Transaction:
    reads = tuple(step for step in steps if isinstance(step, Read))
    writes = tuple(step for step in steps if isinstance(step, Write))
    return Transaction(client=1, name="test", start=at[0], end=at[1], outcome=outcome, reads=reads, writes=writes)


def saw(name: str, *seen: int, **fields: Any) -> Read:
    return Read(name, seen, **fields)


def appended(name: str, number: int, **fields: Any) -> Write:
    return Write(name, number, **fields)


def put(name: str, number: int, version: int | None = None) -> Write:
    """The version is the number, unless told."""
    return Write(name, number, How.PUT, version=version or number)


def deleted(name: str, number: int) -> Write:
    return Write(name, number, How.DELETE, version=number)


def in_turn(*transactions: Transaction) -> History:
    """One after the other, each beginning when the one before has ended."""
    return [
        Transaction(
            client=each.client,
            name=each.name,
            start=index * 10,
            end=index * 10 + 5,
            outcome=each.outcome,
            reads=each.reads,
            writes=each.writes,
        )
        for index, each in enumerate(transactions)
    ]


PLANTED: dict[str, tuple[Kind, History]] = {
    "G0 dirty write: two objects got two writes in opposite orders": (
        Kind.DIRTY_WRITE,
        [
            did(appended("x", 1), appended("y", 2)),
            did(appended("x", 3), appended("y", 4)),
            did(saw("x", 1, 3)),
            did(saw("y", 4, 2)),
        ],
    ),
    "G0 dirty write: two registers, by the server's versions": (
        Kind.DIRTY_WRITE,
        [did(put("x", 1, 11), put("y", 2, 22)), did(put("x", 3, 13), put("y", 4, 14))],
    ),
    "G1a aborted read": (Kind.ABORTED_READ, [did(appended("x", 1), outcome=FAIL), did(saw("x", 1))]),
    "G1a aborted read: deep inside a list": (
        Kind.ABORTED_READ,
        [did(appended("x", 1), outcome=FAIL), did(appended("x", 2)), did(saw("x", 1, 2))],
    ),
    "G1a aborted read: of a register": (Kind.ABORTED_READ, [did(put("x", 1), outcome=FAIL), did(saw("x", 1))]),
    "G1b intermediate read": (
        Kind.INTERMEDIATE_READ,
        [did(appended("x", 1), appended("x", 2)), did(saw("x", 1))],
    ),
    "G1b intermediate read: of a register": (
        Kind.INTERMEDIATE_READ,
        [did(put("x", 1), put("x", 2)), did(saw("x", 1))],
    ),
    "G1c cyclic information flow: each read what the other wrote": (
        Kind.CIRCULAR_FLOW,
        [did(saw("y", 2), appended("x", 1)), did(saw("x", 1), appended("y", 2))],
    ),
    "G1c cyclic information flow: one write, one read": (
        Kind.CIRCULAR_FLOW,
        [did(appended("x", 1), saw("y", 3)), did(appended("x", 2), appended("y", 3)), did(saw("x", 1, 2))],
    ),
    "lost update: both read [1] and wrote": (
        Kind.LOST_UPDATE,
        [did(appended("x", 1)), did(saw("x", 1), appended("x", 2)), did(saw("x", 1), appended("x", 3))],
    ),
    "lost update: a plain put between the read and the write of a transaction": (
        Kind.LOST_UPDATE,
        [did(put("x", 1)), did(put("x", 2)), did(saw("x", 1), put("x", 3))],
    ),
    "lost update: a plain delete between the read and the write of a transaction": (
        Kind.LOST_UPDATE,
        [did(put("x", 1)), did(deleted("x", 2)), did(saw("x", 1), put("x", 3))],
    ),
    "G-single read skew: half of a transfer": (
        Kind.READ_SKEW,
        [
            did(appended("x", 1), appended("y", 2)),
            did(saw("x", 1), saw("y", 2), appended("x", 3), appended("y", 4)),
            did(saw("x", 1), saw("y", 2, 4)),
        ],
    ),
    "G-single read skew: by a transaction that failed later": (
        Kind.READ_SKEW,
        [did(appended("x", 1), appended("y", 2)), did(saw("x"), saw("y", 2), outcome=FAIL)],
    ),
    "G-single read skew: by a transaction that failed, and so lost no update": (
        Kind.READ_SKEW,
        [did(appended("x", 1), appended("y", 2)), did(saw("x"), saw("y", 2), appended("x", 3), outcome=FAIL)],
    ),
    "G-single read skew: two reads of one object differ": (
        Kind.READ_SKEW,
        [did(appended("x", 1)), did(saw("x"), saw("x", 1))],
    ),
    "G-single read skew: of an unknown transaction, only half applied": (
        Kind.READ_SKEW,
        [
            did(saw("x"), saw("y"), appended("x", 1), appended("y", 2), outcome=UNKNOWN),
            did(saw("x", 1), saw("y")),
        ],
    ),
    "G2 write skew": (
        Kind.WRITE_SKEW,
        [did(saw("x"), saw("y"), appended("x", 1)), did(saw("x"), saw("y"), appended("y", 2))],
    ),
    "G2 write skew: of three": (
        Kind.WRITE_SKEW,
        [did(saw("x"), appended("y", 1)), did(saw("y"), appended("z", 2)), did(saw("z"), appended("x", 3))],
    ),
    "G2 write skew: with registers and a delete": (
        Kind.WRITE_SKEW,
        [
            did(put("x", 1), put("y", 2), at=(0, 5)),
            did(saw("x", 1), saw("y", 2), deleted("x", 12), at=(10, 50)),
            did(saw("x", 1), saw("y", 2), deleted("y", 13), at=(10, 50)),
        ],
    ),
    "read-only transaction anomaly (Fekete, O'Neil and O'Neil 2004)": (
        Kind.READ_ONLY,
        [
            did(saw("checking"), saw("savings"), appended("checking", 1), at=(0, 90)),
            did(saw("savings"), appended("savings", 2), at=(0, 20)),
            did(saw("checking"), saw("savings", 2), at=(30, 40)),
        ],
    ),
    "stale read: of a list": (
        Kind.STALE_READ,
        in_turn(did(appended("x", 1)), did(appended("x", 2)), did(saw("x", 1)), did(saw("x", 1, 2))),
    ),
    "stale read: of a register": (Kind.STALE_READ, in_turn(did(put("x", 1)), did(saw("x")), did(saw("x", 1)))),
    "stale read: of what was deleted": (
        Kind.STALE_READ,
        in_turn(did(put("x", 1)), did(deleted("x", 2)), did(saw("x", 1)), did(put("x", 3)), did(saw("x", 3))),
    ),
    "real time: a write is read before it is asked for": (
        Kind.REAL_TIME,
        in_turn(did(saw("x", 1)), did(appended("x", 1))),
    ),
    "real time: new, then old": (
        Kind.REAL_TIME,
        [did(appended("x", 1)), did(saw("x", 1), at=(10, 20)), did(saw("x"), at=(30, 40))],
    ),
    "real time: acknowledged in one order, applied in the other": (
        Kind.REAL_TIME,
        in_turn(did(put("x", 2)), did(put("x", 1))),
    ),
    "lost acknowledged write: of a list": (
        Kind.LOST_WRITE,
        in_turn(did(appended("x", 1)), did(saw("x", 1), appended("x", 2)), did(saw("x", 1))),
    ),
    "lost acknowledged write: another is written in its place": (
        Kind.LOST_WRITE,
        in_turn(did(appended("x", 1)), did(saw("x", 1), appended("x", 2)), did(saw("x", 1), appended("x", 3))),
    ),
    "lost acknowledged write: nobody read before it": (
        Kind.LOST_WRITE,
        in_turn(did(appended("x", 1)), did(appended("x", 2)), did(saw("x", 1))),
    ),
    "lost acknowledged write: of a register": (
        Kind.LOST_WRITE,
        in_turn(did(put("x", 1)), did(put("x", 2)), did(saw("x", 1)), did(saw("x", 1))),
    ),
    "lost acknowledged delete": (
        Kind.LOST_WRITE,
        in_turn(did(put("x", 1)), did(deleted("x", 2)), did(saw("x", 1))),
    ),
    "duplicate element": (Kind.DUPLICATE, [did(appended("x", 1)), did(appended("x", 2)), did(saw("x", 1, 2, 1))]),
    "phantom element": (Kind.PHANTOM, [did(appended("x", 1)), did(saw("x", 1, 7))]),
    "phantom element: of another object": (Kind.PHANTOM, [did(appended("x", 1)), did(saw("y", 1))]),
    "wrong value: the list of one write, the value of another": (
        Kind.WRONG_VALUE,
        [did(appended("x", 1, value=70)), did(saw("x", 1, value=71))],
    ),
    "incompatible order": (
        Kind.INCOMPATIBLE,
        [did(appended("x", 1)), did(appended("x", 2)), did(saw("x", 1, 2)), did(saw("x", 2))],
    ),
    "one version for two writes": (Kind.VERSIONS, [did(put("x", 1, 5)), did(put("x", 2, 5))]),
    "two versions for one write": (Kind.VERSIONS, [did(put("x", 1, 5)), did(saw("x", 1, version=6))]),
    "absent though nothing was deleted": (Kind.LOST_WRITE, in_turn(did(put("x", 1)), did(saw("x")))),
    "absent, and each of the two deletes is impossible": (
        Kind.ABSENCE,
        [
            did(put("x", 1), at=(0, 100)),
            did(deleted("x", 2), appended("a", 3), at=(0, 100)),
            did(saw("a", 3), put("x", 4), appended("b", 5), at=(0, 100)),
            did(deleted("x", 6), appended("c", 7), at=(0, 100)),
            did(saw("b", 5), saw("c"), saw("x"), at=(0, 100)),
        ],
    ),
}


def test_each_kind_of_anomaly_is_planted() -> None:
    assert {kind for kind, _ in PLANTED.values()} == {*Kind}


@pytest.mark.parametrize("name", PLANTED)
def test_found_under_its_name(name: str) -> None:
    kind, history = PLANTED[name]
    anomalies = check(history)
    assert kind in {anomaly.kind for anomaly in anomalies}, "\n".join(map(str, anomalies))
    assert all(f"T{index} " in anomaly.text for anomaly in anomalies for index in anomaly.transactions)


@pytest.mark.parametrize("name", PLANTED)
def test_found_in_whatever_order_the_lines_stand_and_among_others(name: str) -> None:
    kind, history = PLANTED[name]
    others = in_turn(did(appended("other", 901)), did(saw("other", 901), put("else", 902)), did(saw("else", 902)))
    for order in permutations(history) if len(history) < 5 else [history, history[::-1]]:
        assert kind in {anomaly.kind for anomaly in check([*others, *order])}


RIGHT: dict[str, History] = {
    "nothing": [],
    "one after the other": in_turn(
        did(saw("x"), appended("x", 1)), did(saw("x", 1), appended("x", 2)), did(saw("x", 1, 2)), did(saw("y"))
    ),
    "reads of what is being written, before and after": [
        did(appended("x", 1), at=(0, 100)),
        did(saw("x"), at=(10, 20)),
        did(saw("x", 1), at=(30, 40)),
    ],
    "failed writes that nobody saw": in_turn(
        did(appended("x", 1)), did(saw("x", 1), appended("x", 2), outcome=FAIL), did(saw("x", 1), appended("x", 3))
    ),
    "unknown, and applied": in_turn(did(saw("x"), appended("x", 1), outcome=UNKNOWN), did(saw("x", 1))),
    "unknown, and not applied": in_turn(did(saw("x"), appended("x", 1), outcome=UNKNOWN), did(saw("x"))),
    "unknown, and applied late": in_turn(
        did(appended("x", 1), outcome=UNKNOWN), did(saw("x")), did(saw("x")), did(saw("x", 1))
    ),
    "an unknown put, seen": in_turn(
        did(put("x", 1)), did(Write("x", 2, How.PUT), outcome=UNKNOWN), did(saw("x", 2, version=2)), did(put("x", 3))
    ),
    "an unknown put, never seen": in_turn(
        did(Write("x", 2, How.PUT), outcome=UNKNOWN), did(saw("x")), did(put("x", 3))
    ),
    "an unknown delete, applied": in_turn(
        did(put("x", 1)), did(Write("x", 2, How.DELETE), outcome=UNKNOWN), did(saw("x", 1)), did(saw("x"))
    ),
    "an unknown transaction of which another write was seen": in_turn(
        did(put("x", 1)),
        did(Write("x", 2, How.DELETE), appended("y", 3), outcome=UNKNOWN),
        did(saw("y", 3)),
        did(saw("x")),
    ),
    "two writes to one object, the last counts": in_turn(did(appended("x", 1), appended("x", 2)), did(saw("x", 2))),
    "blind writes in another order than they ended": [
        did(put("x", 2), at=(0, 50)),
        did(put("x", 1), at=(0, 90)),
        did(saw("x", 2), at=(95, 99)),
    ],
    "deleted and put again": in_turn(
        did(put("x", 1)), did(deleted("x", 2)), did(saw("x")), did(saw("x"), put("x", 3)), did(saw("x", 3))
    ),
    "absent twice, and which time was seen is told by another object": [
        did(put("x", 1), at=(0, 100)),
        did(deleted("x", 2), appended("a", 3), at=(0, 100)),
        did(saw("a", 3), put("x", 4), appended("b", 5), at=(0, 100)),
        did(deleted("x", 6), appended("c", 7), at=(0, 100)),
        did(saw("b", 5), saw("c", 7), saw("x"), at=(0, 100)),
        did(saw("a", 3), saw("b"), saw("x"), at=(0, 100)),
        did(saw("x"), at=(0, 100)),
    ],
    "absent in two objects, and what the first leaves to itself decides the second": [
        did(saw("x"), saw("y"), saw("a", 2), at=(0, 100)),
        did(put("y", 1), at=(10, 20)),
        did(appended("a", 2), at=(30, 40)),
        did(deleted("x", 3), at=(50, 60)),
        did(deleted("y", 4), at=(70, 80)),
    ],
    "absent in two objects that were deleted twice, the second time for nothing": [
        did(put("x", 1), at=(0, 5)),
        did(put("y", 2), at=(0, 5)),
        did(deleted("x", 3), at=(6, 8)),
        did(deleted("x", 4), at=(9, 15)),
        did(saw("x"), saw("y"), at=(10, 90)),
        did(deleted("y", 5), at=(20, 30)),
        did(deleted("y", 6), at=(40, 50)),
    ],
    "absent in two objects, and what is tried first for the one leaves nothing for the other": [
        did(put("x", 1), at=(0, 5)),
        did(put("y", 2), at=(0, 5)),
        did(deleted("x", 3), at=(6, 7)),
        did(put("x", 4), at=(8, 15)),
        did(deleted("x", 5), at=(16, 18)),
        did(saw("x"), saw("y"), at=(10, 90)),
        did(deleted("y", 6), at=(20, 30)),
        did(put("y", 7), at=(31, 39)),
        did(deleted("y", 8), at=(40, 50)),
    ],
    "the writers of the read-only anomaly, without the reader": [
        did(saw("checking"), saw("savings"), appended("checking", 1), at=(0, 90)),
        did(saw("savings"), appended("savings", 2), at=(0, 20)),
    ],
    "what looks like a write skew, but one saw the other": [
        did(saw("x"), saw("y"), appended("x", 1)),
        did(saw("x", 1), saw("y"), appended("y", 2)),
    ],
    "a write skew in which one failed": [
        did(saw("x"), saw("y"), appended("x", 1)),
        did(saw("x"), saw("y"), appended("y", 2), outcome=FAIL),
    ],
    "a write skew in which one is unknown and left no trace": [
        did(saw("x"), saw("y"), appended("x", 1)),
        did(saw("x"), saw("y"), appended("y", 2), outcome=UNKNOWN),
        did(saw("y"), at=(2000, 2001)),
    ],
    "old reads by a long transaction": [
        did(saw("x"), saw("y"), at=(0, 100)),
        did(appended("x", 1), at=(10, 20)),
        did(saw("x", 1), appended("y", 2), at=(30, 40)),
    ],
    "intervals that touch": [did(appended("x", 1), at=(0, 10)), did(saw("x"), at=(10, 20))],
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_history_passes(name: str) -> None:
    history = RIGHT[name]
    assert [*map(str, check(history))] == []
    assert [*map(str, check(history[::-1]))] == []


def test_the_explanation_is_the_cycle_and_nothing_else() -> None:
    history = [
        did(saw("z"), saw("x"), saw("y"), appended("x", 1), at=(0, 50)),
        did(saw("x"), saw("y"), appended("y", 2), at=(3, 60)),
        did(saw("x", 1), at=(70, 80)),
    ]
    (anomaly,) = check(history)
    assert sorted(anomaly.transactions) == [0, 1]
    first, then, second, and_then, again = anomaly.text.splitlines()
    assert [first, second] == [
        "  T0 (test, client 1, 0..50): read x = absent, read y = absent, append x by 1",
        "  T1 (test, client 1, 3..60): read x = absent, read y = absent, append y by 2",
    ]
    assert then == "    read in y what is overwritten by"
    assert and_then == "    read in x what is overwritten by"
    assert again == "  T0 again"


def test_the_witness_objects_by_itself() -> None:
    history = in_turn(did(appended("x", 1)), did(saw("x", 1)), did(saw("x", 1)))
    facts = collect(history)
    assert objections(facts, [0, 1, 2], ()) == []
    assert objections(facts, [0, 2, 1], ()) == ["T1 ended before a transaction began that is placed before it"]
    assert "T1 read x = ..[1], not ..[]" in objections(facts, [1, 0, 2], ())
    assert objections(facts, [0, 1], ()) == ["the order does not hold every transaction once"]


def test_a_long_chain_is_no_recursion() -> None:
    length = 5000
    history = in_turn(*(did(*([saw("x", n)] if n else []), put("x", n + 1)) for n in range(length)))
    assert check(history) == []
    history[-1] = did(saw("x", 1), put("x", length), at=(history[-1].start, history[-1].end))
    assert {anomaly.kind for anomaly in check(history)} == {Kind.LOST_UPDATE}


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ([did(appended("x", 1)), did(appended("y", 1))], "the id 1 is used twice: by T0 and T1"),
        ([did(appended("x", 1)), did(put("x", 2))], r"objects with appends and also puts or deletes: \['x'\]"),
        ([did(Write("x", 1, How.PUT))], "T0: the write 1 of x has no version"),
    ],
)
def test_what_is_no_history_is_refused(history: History, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check(history)


@pytest.mark.parametrize(
    ("reads", "problem"),
    [
        ([saw(f"account-3-{n}", 9, value=99) for n in range(4)], "the accounts of epoch 3 hold 396"),
        ([saw(f"pair-3-0-{half}", 9, value=0) for half in ("left", "right")], "hold 0"),
        ([saw("counter-3-0", 7, 8, value=1)], "counter-3-0 is 1 after 2 times"),
    ],
)
def test_the_sums_of_the_workload_are_looked_at(reads: list[Read], problem: str) -> None:
    (broken,) = broken_promises([did(*reads)])
    assert problem in broken


def test_a_file_holds_the_whole_history(tmp_path: Path) -> None:
    history = [line for _, lines in PLANTED.values() for line in lines]
    histories.save(history, tmp_path / "history.jsonl")
    assert histories.load(tmp_path / "history.jsonl") == history
