"""Plays a program to both players, step by step, and compares every answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message
from google.protobuf.text_format import MessageToString

from tests.differential import accepted
from tests.differential.accepted import Played
from tests.differential.players import Outcome, Player
from tests.differential.programs import CursorOf, Step

_NEVER_COMPARED = {"compiled_query", "compiled_cursor", "result_compiled_cursor", "index", "cost", "version"}
_WITH_TRANSACTION = ("Get", "Put", "Delete", "RunQuery")


class Difference(AssertionError):
    """The first step whose two outcomes differ, and what of them."""

    def __init__(self, what: str, played: Played) -> None:
        super().__init__(what)
        self.what = what
        self.played = played

    @property
    def signature(self) -> tuple[str, str]:
        """Equal for what is probably the same difference."""
        mine, other = self.played.mine, self.played.other
        codes = f" {mine.code} {other.code}" if self.what == "code" else ""
        return self.played.step.method, self.what + codes

    def __str__(self) -> str:
        played = self.played
        return "\n".join(
            (
                f"step {played.step.number}, {played.step.method}: not the same {self.what}",
                MessageToString(played.request, as_utf8=True),
                f"ours: {shown(played.mine)}",
                f"referee: {shown(played.other)}",
            )
        )


def shown(outcome: Outcome) -> str:
    """An outcome as text, without what is not compared."""
    if outcome.code:
        return f"error {outcome.code} {outcome.detail}"
    answer = type(outcome.answer)()
    answer.CopyFrom(outcome.answer)
    for name in _NEVER_COMPARED & set(answer.DESCRIPTOR.fields_by_name):
        answer.ClearField(name)
    return MessageToString(answer, as_utf8=True) or "(an empty answer)"


@dataclass
class Memory:
    """What one player has given out, by the number of the step that got it."""

    transactions: dict[int, Any] = field(default_factory=dict)
    cursors: dict[int, list[Any]] = field(default_factory=dict)  #: of the results of the latest batch
    unfinished: dict[int, Any] = field(default_factory=dict)  #: cursors for Next

    def resolve(self, step: Step) -> Any:
        """The request with all its references filled in; None when one of them stands for nothing."""
        request = step.message()
        if step.transaction is not None and not self._fill_transaction(step, request):
            return None
        if step.continues is not None:
            if step.continues not in self.unfinished:
                return None
            request.cursor.CopyFrom(self.unfinished[step.continues])
        for reference, name in ((step.start, "compiled_cursor"), (step.end, "end_compiled_cursor")):
            if reference is not None:
                if not self.cursors.get(reference.step):
                    return None
                getattr(request, name).CopyFrom(self.cursor(reference))
        return request

    def _fill_transaction(self, step: Step, request: Any) -> bool:
        handle = self.transactions.get(step.transaction or 0)
        if handle is None:
            return False
        if step.method == "BeginTransaction":
            request.previous_transaction.CopyFrom(handle)
        elif step.method in _WITH_TRANSACTION:
            request.transaction.CopyFrom(handle)
        else:
            request.CopyFrom(handle)
        return True

    def cursor(self, reference: CursorOf) -> Any:
        known = self.cursors[reference.step]
        return known[reference.index % len(known)]

    def learn(self, step: Step, answer: Any, cursors: Sequence[Any]) -> None:
        """Keeps what later steps may refer to; `cursors` are those of the results."""
        if step.method == "BeginTransaction":
            self.transactions[step.number] = answer
        elif step.method in ("RunQuery", "Next"):
            number = step.number if step.continues is None else step.continues
            if cursors:
                self.cursors[number] = list(cursors)
            self.unfinished.pop(number, None)
            if answer.more_results:
                self.unfinished[number] = answer.cursor


class Match:
    """One program against both players, which are reset first."""

    def __init__(self, ours: Player, referee: Player) -> None:
        self._players = (ours, referee)
        self._memories = (Memory(), Memory())
        self._distinct: set[int] = set()  # the queries whose cursors name groups
        for player in self._players:
            player.reset()

    def play(self, program: Sequence[Step]) -> list[Played]:
        """Every step that was played. Raises Difference."""
        return [played for step in program if (played := self.step(step)) is not None]

    def step(self, step: Step) -> Played | None:
        """One step; None when it refers to nothing. Raises Difference."""
        requests = [memory.resolve(step) for memory in self._memories]
        if None in requests:
            return None
        mine, other = (
            player.call(step.method, request) for player, request in zip(self._players, requests, strict=True)
        )
        played = Played(step, requests[0], mine, other)
        settled = accepted.settles(played)
        if not settled:
            _compare(played)
        self._remember(played, settled=settled)
        return played

    def _remember(self, played: Played, *, settled: bool) -> None:
        step = played.step
        if not settled and not played.mine.code:
            self._learn(played)
        elif step.continues is not None:
            self._forget("unfinished", step.continues)
        if step.transaction is not None and (
            step.method not in _WITH_TRANSACTION or settled or accepted.ends_transaction(played)
        ):
            self._give_up(step)

    def _learn(self, played: Played) -> None:
        step = played.step
        mine, other = played.mine.answer, played.other.answer
        if step.method == "RunQuery" and played.request.group_by_property_name:
            self._distinct.add(step.number)
        cursors: tuple[Sequence[Any], Sequence[Any]] = ((), ())
        if step.method in ("RunQuery", "Next"):
            distinct = (step.number if step.continues is None else step.continues) in self._distinct
            cursors = mine.result_compiled_cursor, accepted.cursors_for_referee(played, distinct=distinct)
        for memory, answer, usable in zip(self._memories, (mine, other), cursors, strict=True):
            memory.learn(step, answer, usable)

    def _give_up(self, step: Step) -> None:
        """A transaction that is over, or no longer the same for both, is over for both."""
        for player, memory in zip(self._players, self._memories, strict=True):
            handle = memory.transactions.get(step.transaction or 0)
            if handle is not None and step.method not in ("Commit", "Rollback"):
                player.call("Rollback", handle)
        self._forget("transactions", step.transaction or 0)

    def _forget(self, what: str, number: int) -> None:
        for memory in self._memories:
            getattr(memory, what).pop(number, None)


def _compare(played: Played) -> None:
    mine, other = played.mine, played.other
    if mine.code != other.code:
        raise Difference("code", played)
    if mine.code:
        return
    compare = _COMPARISONS.get(played.step.method)
    if compare is not None:
        for what, found, expected in compare(played):
            if found != expected:
                raise Difference(what, played)


def _keys(played: Played) -> list[tuple[str, Any, Any]]:
    return [("keys", list(played.mine.answer.key), list(played.other.answer.key))]


def _entities(played: Played) -> list[tuple[str, Any, Any]]:
    found, expected = (
        [
            [_shape(value) for _, value in each.ListFields() if isinstance(value, Message)]
            for each in outcome.answer.entity
        ]
        for outcome in (played.mine, played.other)
    )
    return [("entities", found, expected)]


def _results(played: Played) -> list[tuple[str, Any, Any]]:
    mine, other = played.mine.answer, played.other.answer
    found, expected = ([_shape(accepted.normal(each)) for each in answer.result] for answer in (mine, other))
    compared = [("results", found, expected)]
    for name in ("more_results", "skipped_results", "keys_only"):
        compared.append((name, getattr(mine, name), getattr(other, name)))
    compared.append(("cursors", len(mine.result_compiled_cursor), len(other.result_compiled_cursor)))
    indexes = ([_shape(each.definition) for each in answer.index] for answer in (mine, other))
    compared.append(("recommended index", *indexes))
    names = ["cursor"] + ["skipped_results_compiled_cursor"] * (other.skipped_results > 0)
    compared += [(name, mine.HasField(name), other.HasField(name)) for name in names]
    return compared


def _range(played: Played) -> list[tuple[str, Any, Any]]:
    mine, other = played.mine.answer, played.other.answer
    return [("ids", (mine.start, mine.end), (other.start, other.end))]


def _definitions(played: Played) -> list[tuple[str, Any, Any]]:
    found, expected = (
        sorted(_shape(each.definition) for each in outcome.answer.index) for outcome in (played.mine, played.other)
    )
    return [("definitions", found, expected)]


_COMPARISONS = {
    "Put": _keys,
    "Get": _entities,
    "RunQuery": _results,
    "Next": _results,
    "AllocateIds": _range,
    "GetIndices": _definitions,
}


def _shape(message: Message) -> bytes:
    """Comparable also where a value is NaN."""
    return message.SerializePartialToString(deterministic=True)
