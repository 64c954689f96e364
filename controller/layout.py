"""The layout of a cluster: what the operator writes down in cluster.toml. No I/O but reading that file."""

import ipaddress
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from itertools import count as numbers_from
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from adapters.hosts import Host
from controller.databases import recipe as recipe_called
from controller.recipe import Node, usual_copies

#: What a node does for each database: the first of these is asked for in a layout's nodes, and so on. See roles below.
_DATA_ROLES = {
    "cassandra": ("peer",),
    "hbase": ("master", "slave"),
    "mongodb": ("peer",),
    "mysql": ("peer",),
}
_NEED_ZOOKEEPER = ("hbase",)
_QUORUMS = (0, 1, 3, 5)  # of how many nodes
QUORUM_STAYS = (
    "the quorum of a cluster stays as it was founded (another one: pbdeploy backup, down --wipe, up, restore)"
)
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_HOST = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?(?:\.[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?)*")


class Role(StrEnum):
    """`peer`: every node is alike. `master`: has the services that there are once. `gateway`: runs a PBServer.
    `zookeeper`: is one of those that keep the database's ZooKeeper.
    """

    MASTER = "master"
    SLAVE = "slave"
    PEER = "peer"
    GATEWAY = "gateway"
    ZOOKEEPER = "zookeeper"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Ssh(_Part):
    """How the operator's machine reaches a node."""

    user: str = Field("root", min_length=1)
    port: int = Field(22, gt=0, lt=1 << 16)
    key: Path | None = Field(None, description="of the private key; without, those of the SSH agent and of ~/.ssh")
    known_hosts: Path = Path("~/.ssh/known_hosts")
    connect_seconds: float = Field(10.0, gt=0)


class NodeSsh(_Part):
    """What is different about one node."""

    user: str | None = Field(None, min_length=1)
    port: int | None = Field(None, gt=0, lt=1 << 16)
    key: Path | None = None


class Ports(_Part):
    """Of what runs beside the database; the database's own ports are the usual ones."""

    pbserver: int = Field(10001, gt=0, lt=1 << 16, description="what app servers call, on every gateway")
    admin: int = Field(10002, gt=0, lt=1 << 16, description="health and metrics of a PBServer, on loopback")
    agent: int = Field(10003, gt=0, lt=1 << 16, description="the node agent's, on every node, for members alone")

    @model_validator(mode="after")
    def _are_different(self) -> Self:
        given = {"pbserver": self.pbserver, "admin": self.admin, "agent": self.agent}
        for port in given.values():
            if len(names := [name for name in given if given[name] == port]) > 1:
                raise ValueError(f"{' and '.join(names)} are both {port}; give each a port of its own")
        return self


class Firewall(_Part):
    """Who may call the gateways; the members of the cluster always may."""

    clients: tuple[IPv4Network | IPv6Network, ...] = Field(
        (IPv4Network("0.0.0.0/0"), IPv6Network("::/0")), description="networks; without, everybody"
    )


class Tls(_Part):
    """Gateways then speak HTTPS. PEM files on the operator's machine; the certificate is for all gateways' names."""

    certificate: Path
    key: Path


class Machine(_Part):
    """One node. `roles` as the database needs them; `gateway` beside another role, or alone; `zookeeper` beside another
    role. `leaving`: its data moves to the others, and then it is none of the nodes any more.
    """

    address: str
    roles: tuple[Role, ...] = Field(min_length=1)
    number: int | None = Field(None, ge=1, description="names it and its directory; without, its place in the file")
    leaving: bool = Field(False, description="written by `pbdeploy remove-node`")
    tokens: tuple[Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)], ...] = Field(
        (), description="Cassandra's: where the node's ranges of the ring end; without, it chooses 16"
    )
    ssh: NodeSsh = NodeSsh()  # type: ignore[call-arg]

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        try:
            return str(ipaddress.ip_address(value))
        except ValueError:
            if not _HOST.fullmatch(value) or value.replace(".", "").isdigit():
                raise ValueError("neither an IP address nor a host name") from None
            return value.lower()

    @property
    def keeps_data(self) -> bool:
        return bool(self.data_roles)

    @property
    def data_roles(self) -> tuple[Role, ...]:
        """Those that say what it does for the database's data."""
        return tuple(role for role in self.roles if role not in (Role.GATEWAY, Role.ZOOKEEPER))


class Layout(_Part):
    """A whole cluster.toml. `nodes` in the order of the file; the first that keeps data is the database's first."""

    name: str = Field(description="of the cluster")
    database: Literal["cassandra", "hbase", "mongodb", "mysql"]
    replication: int | None = Field(None, ge=1, description="copies of every row; 3 if there are so many nodes")
    directory: Path = Field(Path("/var/lib/pbserver"), description="on every node: engines, configuration, data, logs")
    engines: Path | None = Field(None, description="on every node: where engines are, or are fetched to")
    python: Path | None = Field(None, description="on every node: an interpreter that has PBServer; none is installed")
    ssh: Ssh = Ssh()  # type: ignore[call-arg]
    ports: Ports = Ports()  # type: ignore[call-arg]
    firewall: Firewall = Firewall()  # type: ignore[call-arg]
    tls: Tls | None = None
    versions: dict[str, str] = Field({}, description="of engines; others than those that were tried are refused")
    nodes: tuple[Machine, ...] = Field(min_length=1)

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError("a small letter, then up to 30 small letters, digits and -")
        return value

    @field_validator("directory", "engines", "python")
    @classmethod
    def _is_absolute(cls, value: Path | None) -> Path | None:
        if value is not None and (not value.is_absolute() or value == Path("/") or ".." in value.parts):
            raise ValueError("not an absolute path of a directory of its own")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        wrong = [*self._wrong_nodes(), *self._wrong_counts()]
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Those that keep data, the master first: the database's nodes in their order."""
        return tuple(
            sorted((each for each in self.nodes if each.keeps_data), key=lambda each: "master" not in each.roles)
        )

    @property
    def keepers(self) -> tuple[Machine, ...]:
        """Those with the role zookeeper; empty: the database has its own way."""
        return tuple(each for each in self.machines if Role.ZOOKEEPER in each.roles)

    @property
    def gateways(self) -> tuple[Machine, ...]:
        """Those that run a PBServer: as the layout says, else wherever the database can be entered. Not on a node that
        is leaving.
        """
        chosen = tuple(each for each in self.nodes if Role.GATEWAY in each.roles) or self.machines
        return tuple(each for each in chosen if not each.leaving)

    @property
    def entry_points(self) -> list[str]:
        """Where apps may call, HOST:PORT each."""
        return [str(Host(each.address, self.ports.pbserver)) for each in self.gateways]

    @property
    def copies(self) -> int:
        """Of every row, in the end."""
        if self.database == "mysql":
            return len(self.machines)
        return usual_copies(self.replication, sum(not each.leaving for each in self.machines))

    def database_nodes(self) -> tuple[Node, ...]:
        """The nodes as recipes know them."""
        return tuple(self.node_of(machine) for machine in self.machines)

    def every_node(self) -> tuple[Node, ...]:
        """The database's nodes and then those that are gateways alone; every one has an agent."""
        return self.database_nodes() + tuple(self.node_of(each) for each in self.nodes if not each.keeps_data)

    @property
    def numbers(self) -> dict[str, int]:
        """Of every node, by its address: the one that is written down, otherwise the lowest that is free."""
        given = {each.address: each.number for each in self.nodes if each.number is not None}
        free = (number for number in numbers_from(1) if number not in given.values())
        others = [each for each in self.nodes if not each.keeps_data]
        return {each.address: given.get(each.address) or next(free) for each in [*self.machines, *others]}

    def node_of(self, machine: Machine) -> Node:
        number = self.numbers[machine.address]
        return Node(number, machine.address, self.directory / self.name / f"node{number}")

    def machine_of(self, node: Node) -> Machine:
        return next(each for each in self.nodes if each.address == node.host)

    @property
    def engines_directory(self) -> Path:
        return self.engines or self.directory / "engines"

    def ssh_of(self, machine: Machine) -> Ssh:
        return self.ssh.model_copy(update=machine.ssh.model_dump(exclude_none=True))

    def _wrong_nodes(self) -> list[str]:
        wrong = _repeated("address", (each.address for each in self.nodes))
        for machine in self.nodes:
            if self.database == "mysql" and not _is_ip(machine.address):
                wrong.append(f"{machine.address}: MariaDB asks no resolver who comes; give the IP address")
            wrong += [f"{machine.address}: {text}" for text in self._wrong_roles(machine)]
        return wrong + self._wrong_numbers() + self._wrong_tokens()

    def _wrong_roles(self, machine: Machine) -> list[str]:
        own = _DATA_ROLES[self.database]
        beside = ["zookeeper", "gateway"] if self.database in _NEED_ZOOKEEPER else ["gateway"]
        if unfit := [role for role in machine.roles if role not in (*own, *beside)]:
            there = ", ".join([*own, *beside[:-1]])
            return [f"{self.database} has no role {unfit[0].value!r}, only {there} and {beside[-1]}"]
        if len(machine.roles) != len(set(machine.roles)) or len(machine.data_roles) > 1:
            return [f"one role, and beside it {' and '.join(beside)} if that is to run there"]
        if Role.ZOOKEEPER not in machine.roles:
            return []
        if not machine.keeps_data:
            return [f"zookeeper is a role beside {' or '.join(own)}, and never a node's only one"]
        return [f"it has the role zookeeper and cannot leave: {QUORUM_STAYS}"] if machine.leaving else []

    def _wrong_numbers(self) -> list[str]:
        wrong = _repeated("number", (each.number for each in self.nodes if each.number is not None))
        first = next(iter(self.machines), None)
        if first is not None and self.numbers[first.address] != 1:
            wrong.append(f"{first.address}: the first node that keeps data, or the master, has number 1 and keeps it")
        return wrong

    def _wrong_tokens(self) -> list[str]:
        having = [each for each in self.nodes if each.tokens]
        wrong = _repeated("token", (token for each in having for token in each.tokens))
        for each in having:
            if self.database != "cassandra" or not each.keeps_data:
                wrong.append(f"{each.address}: tokens are for nodes that keep data of Cassandra")
        return wrong

    def _wrong_counts(self) -> list[str]:
        count = len(self.machines)
        most = recipe_called(self.database).MOST_NODES
        masters = sum(Role.MASTER in each.roles for each in self.nodes)
        wrong = []
        if not count:
            return [f"no node keeps data: give one the role {_DATA_ROLES[self.database][0]}"]
        if not self.gateways:
            wrong.append("no gateway stays: apps could not enter")
        if self.machines[0].leaving:
            wrong.append(f"{self.machines[0].address}: the first node has the cluster's head and cannot leave")
        if count > most:
            wrong.append(f"{count} nodes keep data; {self.database} is run on up to {most}")
        if "master" in _DATA_ROLES[self.database] and masters != 1:
            wrong.append(f"{masters} nodes are master; {self.database} has exactly one")
        if (keepers := len(self.keepers)) not in _QUORUMS:
            wrong.append(
                f"{keepers} nodes are zookeeper; take 1, 3 or 5: more than half of them must be there, so an even "
                "number bears no more losses than one less, and above 5 every change is slower"
            )
        if self.database == "mysql" and self.replication not in (None, count):
            wrong.append(
                f"replication is {self.replication}, but Galera keeps every row on all {count} nodes; leave it out"
            )
        elif (self.replication or 1) > (staying := sum(not each.leaving for each in self.machines)):
            wrong.append(f"replication is {self.replication}, but {staying} nodes keep data; lower it or add nodes")
        return wrong


def _repeated(what: str, given: Iterable[object]) -> list[str]:
    return [f"{what} {each} is given {times} times" for each, times in Counter(given).items() if times > 1]


def _is_ip(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def read(path: Path) -> Layout:
    """Raises pydantic.ValidationError naming every wrong key, OSError, tomllib.TOMLDecodeError (a ValueError)."""
    with path.open("rb") as file:
        return Layout.model_validate(tomllib.load(file))
