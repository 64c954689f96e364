"""From a program on which two players differ to a small one on which they still do.

Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002): first of steps,
then of the parts of each request.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from google.protobuf.text_format import MessageToString

from tests.differential.match import Difference, Match, shown
from tests.differential.players import Player
from tests.differential.programs import Step

Program = Sequence[Step]
Place = tuple[tuple[str, int | None], ...]  #: fields from the outermost on, with an index where they are repeated
Attempt = Callable[[Program], Difference | None]

_DEPTH = 3
_WRITES = frozenset(("Put", "Delete", "Commit", "AllocateIds", "CreateIndex"))


def attempt(ours: Player, referee: Player) -> Attempt:
    """A function that plays a program from an empty world and returns what differs first, if anything."""

    def play(program: Program) -> Difference | None:
        try:
            Match(ours, referee).play(program)
        except Difference as difference:
            return difference
        return None

    return play


def shrink(program: Program, found: Difference, play: Attempt, seconds: float = 60) -> tuple[list[Step], Difference]:
    """The smallest program found within `seconds` that ends in a difference like `found`, and that difference."""
    search = _Search(program, found, play, time.monotonic() + seconds)
    search.try_steps([step for step in search.steps if step.method in _WRITES or step.number in search.needed()])
    size = len(search.steps)
    while size > 1:
        size = (size + 1) // 2
        search.drop_runs(size)
    search.simplify()
    search.drop_runs(1)
    return search.steps, search.difference


class _Search:
    """The smallest failing program so far."""

    def __init__(self, program: Program, found: Difference, play: Attempt, deadline: float) -> None:
        self.difference = found
        self.steps = _until(program, found)
        self._signature = found.signature
        self._play = play
        self._deadline = deadline

    def needed(self) -> set[int]:
        """The last step and all it refers to, however indirectly."""
        wanted = {self.steps[-1].number}
        for step in reversed(self.steps):
            if step.number in wanted:
                wanted |= step.needs()
        return wanted

    def try_steps(self, steps: list[Step]) -> bool:
        """Makes `steps` the smallest program if it still fails in the same way."""
        if steps == self.steps or time.monotonic() > self._deadline:
            return False
        difference = self._play(steps)
        if difference is None or difference.signature != self._signature:
            return False
        self.steps = _until(steps, difference)
        self.difference = difference
        return True

    def drop_runs(self, size: int) -> None:
        """Leaves out runs of `size` steps, from the last to the first."""
        end = len(self.steps) - 1
        while end > 0:
            start = max(0, end - size)
            self.try_steps([*self.steps[:start], *self.steps[end:]])
            end = min(start, len(self.steps) - 1)

    def simplify(self) -> None:
        """Leaves out parts of requests for as long as that goes on."""
        changed = True
        while changed:
            changed = False
            for number in [step.number for step in self.steps]:
                changed |= self._simplify_step(number)

    def _simplify_step(self, number: int) -> bool:
        changed = False
        index = 0
        while True:
            place = next((at for at, step in enumerate(self.steps) if step.number == number), None)
            if place is None:
                return changed
            step = self.steps[place]
            smaller = list(smaller_requests(step.message()))
            if index >= len(smaller):
                return changed
            again = replace(step, request=smaller[index])
            if self.try_steps([*self.steps[:place], again, *self.steps[place + 1 :]]):
                changed = True  # what now stands at this index has not been tried
            else:
                index += 1


def _until(program: Program, found: Difference) -> list[Step]:
    return [step for step in program if step.number <= found.played.step.number]


def smaller_requests(message: Any) -> Iterator[bytes]:
    """The message with one part left out, serialized; one for each of at most _DEPTH levels down, outer first."""
    for place in sorted(_places(message, ()), key=len):
        smaller = type(message)()
        smaller.CopyFrom(message)
        owner = smaller
        for name, index in place[:-1]:
            owner = getattr(owner, name) if index is None else getattr(owner, name)[index]
        name, index = place[-1]
        if index is None:
            owner.ClearField(name)
        else:
            del getattr(owner, name)[index]
        yield smaller.SerializePartialToString()


def _places(message: Any, above: Place) -> Iterator[Place]:
    """Where the parts are that may be left out."""
    for field, value in message.ListFields():
        at: list[tuple[Place, Any]] = [((*above, (field.name, None)), value)]
        if field.is_repeated:
            at = [((*above, (field.name, index)), each) for index, each in enumerate(value)]
        for place, each in at:
            if field.is_repeated or not field.is_required:
                yield place
            if field.message_type and len(place) < _DEPTH:
                yield from _places(each, place)


def report(steps: Program, difference: Difference) -> str:
    """The program as text: every request as its client writes it, then what differs."""
    lines = [f"the smallest program found has {len(steps)} steps and differs in the last one:"]
    for step in steps:
        references = "".join(
            f" {name}={value}"
            for name in ("transaction", "continues", "start", "end")
            if (value := getattr(step, name)) is not None
        )
        lines += [f"--- step {step.number}: {step.method}{references}", _text(step)]
    played = difference.played
    lines += [f"=== not the same {difference.what}", f"ours:\n{shown(played.mine)}", f"referee:\n{shown(played.other)}"]
    return "\n".join(lines)


def _text(step: Step) -> str:
    return MessageToString(step.message(), as_utf8=True, as_one_line=len(step.request) < 100)
