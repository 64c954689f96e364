"""What a recipe is made of: nodes and clusters as immutable views, services, stages and commands as data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

_COPIES = 3  # unless told otherwise


class ClusterError(Exception):
    """What is asked for does not fit what is there; the text says both."""


class NotReady(Exception):
    """A check that may still come true; the text says what was found instead."""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine's share of a cluster: an address of its own, where the standard ports are free, and a directory."""

    number: int  #: from 1; the first node of a new cluster is its primary
    host: str
    directory: Path

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def conf(self) -> Path:
        return self.directory / "conf"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "log"


def usual_copies(asked: int | None, nodes: int) -> int:
    """Of every row, in a database of so many nodes that lets one choose."""
    return asked or min(_COPIES, nodes)


@dataclass(frozen=True, slots=True)
class Cluster:
    """One immutable view: everything a recipe may look at. `running`: the nodes of which a service runs already;
    `clients`: the hosts beside the nodes from which the database is entered; `replication`: the copies of every row
    that are asked for, None: the database's usual number; `leaving`: those of the nodes that give up their data;
    `tokens`: Cassandra's, of the nodes that do not choose their own; `keepers`: the nodes on which a database that
    needs ZooKeeper runs it, empty: it chooses.
    """

    nodes: tuple[Node, ...]
    engines: Mapping[str, Path]
    primary: Node
    running: frozenset[Node] = frozenset()
    clients: tuple[str, ...] = ()
    replication: int | None = None
    leaving: frozenset[Node] = frozenset()
    tokens: Mapping[Node, tuple[int, ...]] = field(default_factory=dict)
    keepers: tuple[Node, ...] = ()

    @property
    def copies(self) -> int:
        """Of every row, where a database lets one choose."""
        return usual_copies(self.replication, sum(node not in self.leaving for node in self.nodes))

    @property
    def hosts(self) -> list[str]:
        return [node.host for node in self.nodes]

    def entry_points(self, port: int) -> list[str]:
        """For each node all of them as HOST:PORT,HOST:PORT, its own first: who enters there goes on without it."""
        places = [f"{host}:{port}" for host in self.hosts]
        return [",".join([*places[first:], *places[:first]]) for first in range(len(places))]


@dataclass(frozen=True, slots=True)
class Service:
    """One process. Its output goes to `NODE/log/NAME.log`; SIGKILL follows `stop_seconds` after SIGTERM."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_seconds: float = 10


@dataclass(frozen=True, slots=True)
class Command:
    """Something that runs to its end and must exit with 0; `text` goes to its standard input."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a node takes of its machine: memory with an empty database and some load, ports and what they are for."""

    memory_mib: int
    ports: Mapping[int, str]


#: Returns when the node has what it needs, raises NotReady otherwise; gives up by itself after a few seconds.
Check = Callable[[Node, Cluster], None]


@dataclass(frozen=True, slots=True)
class Stage:
    """Services that start together; the next stage starts when `check` has passed on each of their nodes."""

    service: str
    nodes: tuple[Node, ...]
    check: Check
    boot_timeout_seconds: float = 180


@dataclass(frozen=True, slots=True)
class Membership:
    """How the nodes that keep data may change in a cluster that is up. `does_without`: one that is gone for good, and
    cannot give up its data itself, may be taken out too. `fewest`: so many have to stay, or be there before others
    join.
    """

    does_without: bool = False
    fewest: int = 1


def nothing_on_disk(node: Node, cluster: Cluster) -> str:
    """The `on_disk` of databases whose first node always starts first."""
    del node, cluster
    return ""


def first_node(found: Mapping[Node, str], cluster: Cluster) -> Node:
    """The `primary_of` of such databases."""
    del found
    return cluster.nodes[0]


def needs_no_leave(node: Node, found: str) -> None:
    """The `let_begin` of such databases."""
    del node, found


def runs_nothing(node: Node, cluster: Cluster) -> Sequence[Command]:
    """The `admission` of databases that let in whoever knows the way, the `departure` where it is enough to stop."""
    del node, cluster
    return []


class Recipe(Protocol):
    """The parts every module in controller/databases has. `on_disk`, `let_begin`, `choose_primary` and `ready` touch
    the world, the others are pure.
    """

    ENGINES: tuple[str, ...]  #: what has to be fetched
    MOST_NODES: int  #: how many nodes this database can be spread over
    MEMBERSHIP: Membership  #: how its nodes can change while it is up

    def files(self, node: Node, cluster: Cluster) -> Mapping[Path, str]:
        """The node's configuration: absolute path -> text."""

    def services(self, node: Node, cluster: Cluster) -> Sequence[Service]:
        """The node's processes in the order they start."""

    def needs(self, node: Node, cluster: Cluster) -> Needs:
        """What the machine must have for the node's services, and must not have taken."""

    def stages(self, cluster: Cluster) -> Sequence[Stage]:
        """The order of the boot, masters first; the reverse is the order of the stop."""

    def first_boot(self, primary: Node, cluster: Cluster) -> Sequence[Command]:
        """What makes the primary's empty data directory usable: run once, before anything starts."""

    def admission(self, node: Node, cluster: Cluster) -> Sequence[Command]:
        """What lets in the cluster's nodes and clients, and nobody else; run on a node that serves, once or often."""

    def departure(self, node: Node, cluster: Cluster) -> Sequence[Command]:
        """What moves all data of a node to the others: run on it while its services are up; after it has been broken
        off it is run again. No client enters at the node any more.
        """

    def log_files(self, node: Node) -> Sequence[Path]:
        """Where the node says what went wrong, the most telling file first."""

    def store_urls(self, cluster: Cluster) -> Sequence[str]:
        """One URL per entry point, its own node first among the hosts where a URL names several."""

    def on_disk(self, node: Node, cluster: Cluster) -> str:
        """What of the node's data decides who must start first; empty: it has no say. Runs on the node's own machine,
        its services down.
        """

    def primary_of(self, found: Mapping[Node, str], cluster: Cluster) -> Node:
        """The node that must start first, seen from what the nodes have on disk. Raises NotReady when more nodes have
        to be heard.
        """

    def let_begin(self, node: Node, found: str) -> None:
        """What the chosen node must be told on its disk before it starts; `found`: its own `on_disk`."""

    def choose_primary(self, cluster: Cluster) -> Node:
        """The three at once, where the disks of all nodes are this machine's. Called with all services down."""

    def ready(self, node: Node, cluster: Cluster) -> None:
        """A write, a read and a scan through the real client, entering at this node. Raises NotReady."""
