"""What the head looks at when it decides: what is wanted and what was observed, as immutable views."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controller.agent.parts import Parts

#: Three heartbeats.
MISSING_SECONDS = 30.0


class Kind(StrEnum):
    """What an action is. CHOOSE concerns no single node (0)."""

    PREPARE = "prepare"
    FIRST_BOOT = "first boot"
    CHOOSE = "choose"
    START = "start"
    CHECK = "check"
    STOP = "stop"
    ADMIT = "let in"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing for one node. `service`: or a stage's name. `begins`: it is to begin the cluster."""

    kind: Kind
    node: int
    service: str = ""
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """`founded`: the cluster has been whole before, so it may go on without some of its nodes."""

    parts: Parts
    up: bool
    version: str
    founded: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """One node as last heard of. `answers`: to the last heartbeat. `services`: name -> supervisord's state. `stale`:
    those that run with other settings than they are to have. `left`: it has given up its data; `leaving`: how far.
    """

    answers: bool
    silent_seconds: float = 0.0
    version: str = ""
    prepared: bool = False
    first_booted: bool = False
    services: Mapping[str, str] = field(default_factory=dict)
    serves: bool | None = None
    stale: frozenset[str] = frozenset()
    left: bool = False
    leaving: str = ""

    @property
    def missing(self) -> bool:
        return not self.answers and self.silent_seconds >= MISSING_SECONDS


@dataclass(frozen=True, slots=True)
class Observed:
    """`passed`: (node, stage) whose check has passed since its processes were started last; `late`: those for which
    it has not in its time. `failed`: actions that did not work, as (kind, node, service), and why; `primary`: who has
    been chosen to begin; `admitted`: the nodes of the layout have been let in.
    """

    nodes: Mapping[int, Seen]
    passed: frozenset[tuple[int, str]] = frozenset()
    late: frozenset[tuple[int, str]] = frozenset()
    failed: Mapping[tuple[Kind, int, str], str] = field(default_factory=dict)
    primary: int | None = None
    admitted: bool = True


@dataclass(frozen=True, slots=True)
class Steps:
    """What is to be done now, all at once. `whole`: everything wanted is there."""

    sentence: str
    actions: tuple[Action, ...] = ()
    whole: bool = False
