"""The shrinking of failing programs, proven with players that are plain objects."""

from typing import Any

from google.appengine.datastore import datastore_pb

from tests.differential.match import Difference
from tests.differential.players import Outcome
from tests.differential.programs import MESSAGES, Step
from tests.differential.shrinking import attempt, report, shrink
from tests.differential.values import set_reference

WRONG_AFTER = {"first", "second"}


class Fake:
    """Remembers the names of what was put; a wrong one refuses every Get once both of WRONG_AFTER are there."""

    def __init__(self, *, wrong: bool) -> None:
        self._wrong = wrong
        self._names: set[str] = set()

    def reset(self) -> None:
        self._names.clear()

    def call(self, method: str, request: Any) -> Outcome:
        if method == "Put":
            self._names |= {entity.key.path.element[0].name for entity in request.entity}
        if method == "Get" and self._wrong and self._names >= WRONG_AFTER:
            return Outcome(None, 1, "refused")
        return Outcome(MESSAGES[method][1]())


def put(number: int, *names: str) -> Step:
    request = datastore_pb.PutRequest()
    for name in names:
        entity = request.entity.add()
        set_reference(entity.key, "", [("A", name)])
        entity.entity_group.SetInParent()
        entity.property.add(name="p", multiple=False).value.int64Value = 1
    return Step(number, "Put", request.SerializeToString())


def get(number: int) -> Step:
    request = datastore_pb.GetRequest()
    set_reference(request.key.add(), "", [("A", "other")])
    return Step(number, "Get", request.SerializeToString())


def shrunk(program: list[Step]) -> tuple[list[Step], Difference]:
    play = attempt(Fake(wrong=True), Fake(wrong=False))
    found = play(program)
    assert found is not None
    return shrink(program, found, play, seconds=30)


def program() -> list[Step]:
    steps = [put(number, f"noise{number}") if number % 2 else get(number) for number in range(60)]
    steps[11] = put(11, "noise", "first", "more noise")
    steps[37] = put(37, "second")
    return steps


def test_only_the_steps_that_matter_are_left() -> None:
    steps, _ = shrunk(program())
    assert [(step.number, step.method) for step in steps] == [(11, "Put"), (37, "Put"), (38, "Get")]


def test_only_the_parts_of_requests_that_matter_are_left() -> None:
    steps, _ = shrunk(program())
    puts = [step.message() for step in steps[:2]]
    assert [[entity.key.path.element[0].name for entity in each.entity] for each in puts] == [["first"], ["second"]]
    assert not any(entity.property for each in puts for entity in each.entity)


def test_the_report_shows_requests_and_both_answers() -> None:
    text = report(*shrunk(program()))
    for part in ("step 11: Put", 'name: "first"', "refused", "(an empty answer)", "not the same code"):
        assert part in text


def test_players_that_agree_have_no_difference() -> None:
    assert attempt(Fake(wrong=False), Fake(wrong=False))(program()) is None


def test_what_a_step_refers_to_is_left_in() -> None:
    class Refusing(Fake):
        def call(self, method: str, request: Any) -> Outcome:
            if self._wrong and method == "Commit":
                return Outcome(None, 2, "conflict")
            return Outcome(MESSAGES[method][1]())

    begin = datastore_pb.BeginTransactionRequest(app="a").SerializeToString()
    steps = [get(0), Step(1, "BeginTransaction", begin), get(2), Step(3, "Commit", b"", transaction=1), get(4)]
    play = attempt(Refusing(wrong=True), Refusing(wrong=False))
    found = play(steps)
    assert found is not None
    assert [step.number for step in shrink(steps, found, play)[0]] == [1, 3]
