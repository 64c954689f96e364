"""What a machine says of itself (probe.py)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from controller.hosts import ssh
from controller.hosts.ssh import Answer, Unreachable
from controller.layout import Ssh

PROGRAM = Path(__file__).with_name("probe.py").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`ahead_seconds`: how far the machine's clock is ahead of ours, as far as that can be told over the network."""

    python: tuple[int, ...]
    root: bool
    memory_mib: int
    available_mib: int
    free_mib: Mapping[str, int]  #: by directory: of the disk that it is, or would be, on
    java: str | None  #: version of the `java` that is found first
    taken: Mapping[int, str]  #: port that was asked about -> who listens there; empty if this user may not know
    has_address: bool
    ahead_seconds: float

    @classmethod
    def parsed(cls, text: str, *, asked: float, answered: float) -> Self:
        """`asked`, `answered`: our time around it. Raises ValueError for text that the probe has not written."""
        try:
            found: dict[str, Any] = json.loads(text)
            theirs = found.pop("time")
            found["python"] = tuple(found["python"])
            found["taken"] = {int(port): who for port, who in found["taken"].items()}
            return cls(**found, ahead_seconds=_ahead(theirs, asked, answered))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not what the probe says: {text[:200]!r}") from error


def survey(questions: Mapping[str, tuple[Ssh, str]]) -> dict[str, Facts | Unreachable]:
    """The facts of machines, all at once. `questions`: by address, how to reach it and request()."""
    return {address: _facts(answer) for address, answer in ssh.run(PROGRAM, questions).items()}


def _facts(answer: Answer | Unreachable) -> Facts | Unreachable:
    if isinstance(answer, Unreachable):
        return answer
    try:
        return Facts.parsed(answer.text, asked=answer.asked, answered=answer.answered)
    except ValueError as error:
        return Unreachable(str(error))


def request(directories: Sequence[Path], listens: Mapping[int, str], address: str) -> str:
    """The probe's argument. `listens`: port -> the address on which it must be free."""
    return json.dumps({"directories": [*map(str, directories)], "listens": listens, "address": address})


def _ahead(theirs: float, asked: float, answered: float) -> float:
    """The least that explains it: their clock was read at some time between the two."""
    if theirs > answered:
        return theirs - answered
    return min(0.0, theirs - asked)
