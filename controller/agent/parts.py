"""What a layout means: the recipes' parts for its nodes. Pure."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from controller.databases import recipe as recipe_called
from controller.engines import private
from controller.gateways import HostGateways
from controller.layout import QUORUM_STAYS, Layout
from controller.recipe import Check, Cluster, Node, Recipe, Service, Stage
from pbserver import __version__

VERSION = __version__
#: The stage between the database's last and the gateways': no service starts in it.
READY = "a write, a read and a scan"
_READY_SECONDS = 180


@dataclass(frozen=True)
class Parts:
    """Of one layout. Nodes are named by their numbers."""

    layout: Layout

    @cached_property
    def nodes(self) -> Mapping[int, Node]:
        return {node.number: node for node in self.layout.every_node()}

    @cached_property
    def recipe(self) -> Recipe:
        return recipe_called(self.layout.database)

    @cached_property
    def gateways(self) -> HostGateways:
        return HostGateways(self.recipe, self.layout)

    @cached_property
    def digest(self) -> str:
        """Changes with the layout and the version: a node with the same one is prepared."""
        return hashlib.sha256(f"{VERSION}\n{self.layout.model_dump_json()}".encode()).hexdigest()

    @cached_property
    def data_nodes(self) -> tuple[int, ...]:
        return tuple(node.number for node in self.layout.database_nodes())

    @cached_property
    def leaving(self) -> tuple[int, ...]:
        return tuple(number for number, node in self.nodes.items() if self.layout.machine_of(node).leaving)

    @cached_property
    def keepers(self) -> tuple[int, ...]:
        return tuple(self.layout.numbers[each.address] for each in self.layout.keepers)

    @cached_property
    def entries(self) -> tuple[int, ...]:
        """The nodes that are to run a PBServer."""
        hosts = {each.address for each in self.layout.gateways}
        return tuple(number for number, node in self.nodes.items() if node.host in hosts)

    def cluster(self, primary: int = 1, running: Iterable[int] = (), without: Collection[int] = ()) -> Cluster:
        """`without`: nodes that do not count, because they have left or never joined."""
        nodes = tuple(node for node in self.layout.database_nodes() if node.number not in without)
        return Cluster(
            nodes,
            {name: private.place(name, self.layout.engines_directory) for name in self.recipe.ENGINES},
            self.nodes[primary],
            frozenset(self.nodes[number] for number in running),
            tuple(node.host for number, node in self.nodes.items() if number not in self.data_nodes),
            self.layout.replication,
            frozenset(self.nodes[number] for number in self.leaving),
            {node: tokens for node in nodes if (tokens := self.layout.machine_of(node).tokens)},
            tuple(self.nodes[number] for number in self.keepers),
        )

    def other_quorum(self, founded: Collection[int]) -> str:
        """Why the layout cannot be that of a cluster which was founded with these keepers; empty: it can."""
        if {*founded} == {*self.keepers}:
            return ""
        had, has = (", ".join(f"node{each}" for each in sorted(all_)) or "no node" for all_ in (founded, self.keepers))
        return f"role zookeeper: {had} had it, {has} has it now; put that back, {QUORUM_STAYS}"

    def recipes_of(self, number: int) -> tuple[Recipe, ...]:
        """A node that is a gateway alone has nothing of the database."""
        return (self.recipe, self.gateways) if number in self.data_nodes else (self.gateways,)

    def services(self, number: int, cluster: Cluster) -> dict[str, Service]:
        """Of one node, in the order of their start."""
        node = self.nodes[number]
        return {each.name: each for recipe in self.recipes_of(number) for each in recipe.services(node, cluster)}

    def stages(self, cluster: Cluster) -> list[Stage]:
        """Of the database, then READY, then the gateways'."""
        ready = Stage(READY, cluster.nodes, self.recipe.ready, _READY_SECONDS)
        return [*self.recipe.stages(cluster), ready, *self.gateways.stages(cluster)]

    def check(self, stage: str) -> Check:
        """The check of the stage with that service. Raises StopIteration if there is none."""
        return next(each.check for each in self.stages(self.cluster(running=self.data_nodes)) if each.service == stage)
