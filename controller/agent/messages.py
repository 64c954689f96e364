"""What agents are asked, and what they answer: JSON bodies as frozen models."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from controller.layout import Layout


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Ask(Message):
    """A question that needs no words."""


class Task(Message):
    """Something for a short-lived process: `task` is a function's name in work.py, `argument` its last argument."""

    task: str
    layout: Layout
    number: int
    argument: str = ""


class Done(Message):
    """`text`: what was found or, when it is not ok, what went wrong."""

    ok: bool
    text: str = ""


class Start(Message):
    """`begins`: the service is to begin the cluster, from what the node has on disk (Recipe.on_disk)."""

    layout: Layout
    service: str
    begins: bool = False
    on_disk: str = ""


class Stop(Message):
    service: str


class ServiceFacts(Message):
    """`state` is supervisord's: RUNNING, STARTING, BACKOFF, STOPPED, EXITED, FATAL, STOPPING, UNKNOWN. `stale`: it runs
    with other settings than it would have after a start now.
    """

    state: str
    pid: int
    memory_mib: int
    stale: bool = False


class NodeFacts(Message):
    """What an agent says at every heartbeat. `serves`: whether the node's PBServer does, None where there is none.
    `left`: it has given up its data; `leaving`: how far that is.
    """

    version: str
    engines: Mapping[str, str]
    prepared: str
    first_booted: bool
    services: Mapping[str, ServiceFacts]
    serves: bool | None
    left: bool = False
    leaving: str = ""
    cpu_percent: float
    memory_mib: int
    available_mib: int
    disk_mib: int
    free_mib: int
    processes: int
    ports: Sequence[int]


class Want(Message):
    """What the operator asks the head for."""

    layout: Layout
    up: bool


class Since(Message):
    """For the head: sentences after that number, waiting for one up to so many seconds."""

    after: int = 0
    wait_seconds: float = 0


class Sentence(Message):
    number: int
    time: float
    text: str


class Trouble(Message):
    """Something that did not come about in its time, or failed."""

    node: str
    address: str
    what: str
    text: str


class NodeStatus(Message):
    """`facts` are those of the last heartbeat, None before the first; `silent_seconds` since then. `joins`: it has no
    part of the data yet, while others have.
    """

    number: int
    name: str
    address: str
    roles: Sequence[str]
    joins: bool = False
    silent_seconds: float
    facts: NodeFacts | None


class Status(Message):
    """The whole cluster as the head sees it. `layout` is None before the first `up`; `awaited`: what is being done now,
    and what the last look at it has found.
    """

    version: str
    layout: Layout | None
    up: bool
    whole: bool
    down: bool
    sentences: Sequence[Sentence]
    nodes: Sequence[NodeStatus]
    troubles: Sequence[Trouble]
    awaited: Sequence[Trouble]
    entry_points: Sequence[str]
