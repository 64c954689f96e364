"""Real clusters on this machine: every node a loopback address and a directory, every service a process; on request a
PBServer at every entry point.

What runs is seen from the files of the cluster's directory, so whoever opens that directory may go on with it.
"""

import fcntl
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from controller import booting, gateways, processes, subnets
from controller.booting import BootFailed
from controller.databases import recipe as recipe_called
from controller.engines import private
from controller.gateways import Gateways
from controller.processes import Leader
from controller.progress import Report, say_nothing
from controller.recipe import Cluster, ClusterError, Node, NotReady, Recipe, Service, Stage

__all__ = ["BootFailed", "ClusterError", "LocalCluster", "NodeStatus"]

_FILE = "cluster.json"
_PBSERVERS = "pbservers"


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """`trouble`: empty if a write, a read and a scan succeed there and its PBServer, if it should have one, has had
    answers from the database; otherwise what was found instead.
    """

    node: Node
    running: tuple[str, ...]
    stopped: tuple[str, ...]
    trouble: str


class LocalCluster:
    """A cluster in `directory`, up or not. As a context manager it is down at the end, whatever happened.

    Not for several threads at once; of several processes that boot or stop one directory's cluster, one waits.
    """

    def __init__(self, directory: Path, *, engines: Path | None = None, report: Report = say_nothing) -> None:
        """Raises ClusterError where there is no cluster; `up` makes one."""
        self.directory = directory.absolute()
        described = _described(self.directory)
        self.name: str = described["name"]
        self.subnet: str = described["subnet"]
        self.nodes = tuple(
            Node(number, host, self.directory / f"node{number}")
            for number, host in enumerate(subnets.hosts(self.subnet, described["nodes"]), 1)
        )
        self._recipe = recipe_called(self.name)
        self._gateways = Gateways(self._recipe)
        self._engines = engines or private.default_directory()
        self._report = report
        self._children: list[subprocess.Popen[bytes]] = []

    @classmethod
    def up(
        cls,
        name: str,
        nodes: int,
        directory: Path,
        *,
        pbserver: bool = False,
        engines: Path | None = None,
        report: Report = say_nothing,
    ) -> Self:
        """Boots the cluster in `directory` with the data it has, and makes it if there is none; missing engines are
        fetched. What runs already is left alone. `pbserver`: with a PBServer at every entry point, which then belongs
        to the cluster until it is down; unless there is a `pbserver_refusal`. Raises BootFailed naming the node, after
        stopping again what this call has started; ClusterError if the directory holds another cluster; EngineError.
        """
        _describe(name, nodes, directory)
        cluster = cls(directory, engines=engines, report=report)
        with cluster._locked():
            wanted = pbserver or cluster._has_pbservers()
            cluster._write(_PBSERVERS, cluster._boot(cluster.nodes, pbservers=wanted))
        return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.down()

    def store_urls(self) -> Sequence[str]:
        """One per entry point."""
        return self._recipe.store_urls(self._view())

    def pbserver_urls(self) -> Mapping[Node, str]:
        """Where apps may call: an `http://HOST:PORT` for each node that should have a PBServer."""
        nodes = [node for stage in self._gateways.stages(self._view()) for node in stage.nodes]
        return {node: f"http://{node.host}:{gateways.PORT}" for node in nodes} if self._has_pbservers() else {}

    def pbserver_refusal(self) -> str:
        """Why no PBServer can use the cluster, which must be up; empty: it can."""
        return gateways.refusal(self.name, self.store_urls()[0])

    def kill(self, node: Node) -> None:
        """kill -9 of all of the node's processes, as when its power goes."""
        with self._locked():
            for leader in self._leaders(node):
                processes.kill(leader)
            self._reap()

    def start(self, node: Node) -> None:
        """Starts what does not run there, and returns when the node is ready. Raises BootFailed."""
        with self._locked():
            self._boot((node,), pbservers=self._has_pbservers())

    @contextmanager
    def stop_cont(self, node: Node) -> Iterator[None]:
        """Within the block the node is frozen: it holds its connections and answers nothing."""
        leaders = self._leaders(node)
        try:
            for leader in leaders:
                processes.freeze(leader)
            yield
        finally:
            for leader in leaders:
                processes.thaw(leader)

    def down(self) -> None:
        """Ends every process, in the reverse order of the boot. The data stays."""
        with self._locked():
            view = self._view()
            self._stop(_members([*self._recipe.stages(view), *self._gateways.stages(view)]))
            self._write(_PBSERVERS, False)

    def status(self) -> list[NodeStatus]:
        """What runs now, and whether it serves."""
        view = self._view()
        return [self._node_status(node, view) for node in self.nodes]

    def listeners(self) -> list[str]:
        """The ports that are open on the cluster's addresses, as `HOST:PORT`."""
        return subnets.listeners(self.subnet)

    def _node_status(self, node: Node, view: Cluster) -> NodeStatus:
        running: list[str] = []
        stopped: list[str] = []
        troubles: list[str] = []
        for recipe in (self._recipe, self._gateways) if self._has_pbservers() else (self._recipe,):
            names = [service.name for service in recipe.services(node, view)]
            missing = [name for name in names if not booting.runs(node, name)]
            running += [name for name in names if name not in missing]
            stopped += missing
            troubles += [_trouble(recipe, node, view, missing)]
        return NodeStatus(node, tuple(running), tuple(stopped), "; ".join(filter(None, troubles)))

    def _view(self) -> Cluster:
        places = {name: private.place(name, self._engines) for name in self._recipe.ENGINES}
        running = frozenset(node for node in self.nodes if any(map(processes.leads, self._database(node))))
        return Cluster(self.nodes, places, self.nodes[0], running)

    def _boot(self, nodes: Sequence[Node], *, pbservers: bool) -> bool:
        """Whether with PBServers."""
        started: list[tuple[Node, str]] = []
        try:
            view = self._prepared()
            if not view.running:  # PBServers that have outlived all of it would refuse the cluster that begins now
                self._stop(_members(self._gateways.stages(view)))
            self._boot_stages(self._recipe, nodes, view, started)
            for node in nodes:
                self._report(f"{node.name} ({node.host}): a write, a read and a scan")
                booting.wait_for(self._recipe.ready, "a write, a read and a scan", self._recipe, node, view)
            if pbservers := pbservers and not self.pbserver_refusal():
                self._boot_stages(self._gateways, nodes, view, started)
        except BaseException:
            self._stop(started)
            raise
        return pbservers

    def _prepared(self) -> Cluster:
        """The view to boot from, with all there that must lie on disk before anything starts."""
        for name in self._recipe.ENGINES:
            private.fetch(name, self._engines, report=self._report)
        booting.clear_records(self.nodes)
        view = self._view()
        booting.write_files(self._recipe, view)
        if view.running:
            return view
        marker = self.directory / "first-boot.done"
        if not marker.exists():
            self._report("first boot")
            for command in self._recipe.first_boot(view.primary, view):
                booting.run_command(command, view.primary)
            marker.touch()
        return replace(view, primary=self._recipe.choose_primary(view))

    def _boot_stages(
        self, recipe: Recipe, nodes: Sequence[Node], view: Cluster, started: list[tuple[Node, str]]
    ) -> None:
        for stage in recipe.stages(view):
            members = [node for node in stage.nodes if node in nodes]
            for node in members:
                if not booting.runs(node, stage.service):
                    self._report(f"{node.name} ({node.host}): {stage.service}")
                    started.append((node, stage.service))
                    self._children.append(booting.start_service(self._service(node, stage.service, view), node))
            for node in members:
                booting.wait_for(stage.check, stage.service, recipe, node, view, stage.boot_timeout_seconds)

    def _stop(self, services: Sequence[tuple[Node, str]]) -> None:
        """In the reverse of the given order, those of one name at once."""
        view = self._view()
        for name, nodes in groupby(reversed(services), lambda service: service[1]):
            seconds: dict[Leader, float] = {}
            for node, _ in nodes:
                if (leader := Leader.read(booting.record_of(node, name))) is not None:
                    seconds[leader] = self._service(node, name, view).stop_seconds
            if seconds:
                self._report(f"stopping {name}")
                processes.stop(seconds)
        self._reap()

    def _service(self, node: Node, name: str, view: Cluster) -> Service:
        services = [*self._recipe.services(node, view), *self._gateways.services(node, view)]
        return next(service for service in services if service.name == name)

    def _leaders(self, node: Node) -> list[Leader]:
        """What was started there last, running or not."""
        return [leader for record in booting.records(node) if (leader := Leader.read(record))]

    def _database(self, node: Node) -> list[Leader]:
        """Those of them that make the node one of the database: a PBServer that has outlived it does not."""
        gateway = Leader.read(booting.record_of(node, gateways.NAME))
        return [leader for leader in self._leaders(node) if leader != gateway]

    def _has_pbservers(self) -> bool:
        return bool(_described(self.directory).get(_PBSERVERS))

    def _write(self, name: str, value: object) -> None:
        """Changes what is written down about the cluster."""
        written = self.directory / f"{_FILE}.new"
        written.write_text(json.dumps({**_described(self.directory), name: value}), encoding="utf-8")
        written.replace(self.directory / _FILE)

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.directory / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _trouble(recipe: Recipe, node: Node, view: Cluster, missing: Sequence[str]) -> str:
    if missing:
        return f"{', '.join(missing)} not running"
    try:
        recipe.ready(node, view)
    except NotReady as error:
        return str(error)
    return ""


def _members(stages: Sequence[Stage]) -> list[tuple[Node, str]]:
    return [(node, stage.service) for stage in stages for node in stage.nodes]


def _described(directory: Path) -> dict[str, Any]:
    try:
        described: dict[str, Any] = json.loads((directory / _FILE).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ClusterError(f"{directory} holds no cluster: pbdeploy local up NAME --dir {directory}") from error
    return described


def _describe(name: str, nodes: int, directory: Path) -> None:
    """Writes down what the cluster is, on its first boot; later it must be asked for as it was then."""
    most = recipe_called(name).MOST_NODES
    if not 1 <= nodes <= most:
        allowed = "1 node" if most == 1 else f"1 to {most} nodes"
        raise ClusterError(f"{name} runs on {allowed} here, not on {nodes}")
    if (directory / _FILE).exists():
        found = _described(directory)
        if (found["name"], found["nodes"]) != (name, nodes):
            raise ClusterError(
                f"{directory} holds {found['name']} with {found['nodes']} nodes, not {name} with {nodes}"
            )
        return
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"name": name, "nodes": nodes, "subnet": subnets.free()})
    (directory / _FILE).write_text(text, encoding="utf-8")
