"""Real clusters on this machine: every node a loopback address and a directory, every service a process.

What runs is seen from the files of the cluster's directory, so whoever opens that directory may go on with it.
"""

import fcntl
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from controller import booting, processes, subnets
from controller.booting import BootFailed
from controller.databases import recipe as recipe_called
from controller.engines import private
from controller.processes import Leader
from controller.progress import Report, say_nothing
from controller.recipe import Cluster, ClusterError, Node, NotReady, Service, Stage

__all__ = ["BootFailed", "ClusterError", "LocalCluster", "NodeStatus"]

_FILE = "cluster.json"


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """`trouble`: empty if a write, a read and a scan succeed there, otherwise what was found instead."""

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
        engines: Path | None = None,
        report: Report = say_nothing,
    ) -> Self:
        """Boots the cluster in `directory` with the data it has, and makes it if there is none; missing engines are
        fetched. What runs already is left alone. Raises BootFailed naming the node, after stopping again what this
        call has started; ClusterError if the directory holds another cluster; EngineError.
        """
        _describe(name, nodes, directory)
        cluster = cls(directory, engines=engines, report=report)
        with cluster._locked():
            cluster._boot(cluster.nodes)
        return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.down()

    def store_urls(self) -> Sequence[str]:
        """One per entry point."""
        return self._recipe.store_urls(self._view())

    def kill(self, node: Node) -> None:
        """kill -9 of all of the node's processes, as when its power goes."""
        with self._locked():
            for leader in self._leaders(node):
                processes.kill(leader)
            self._reap()

    def start(self, node: Node) -> None:
        """Starts what does not run there, and returns when the node is ready. Raises BootFailed."""
        with self._locked():
            self._boot((node,))

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
            self._stop(_members(self._recipe.stages(self._view())))

    def status(self) -> list[NodeStatus]:
        """What runs now, and whether it serves."""
        view = self._view()
        return [self._node_status(node, view) for node in self.nodes]

    def listeners(self) -> list[str]:
        """The ports that are open on the cluster's addresses, as `HOST:PORT`."""
        return subnets.listeners(self.subnet)

    def _node_status(self, node: Node, view: Cluster) -> NodeStatus:
        names = [service.name for service in self._recipe.services(node, view)]
        running = tuple(name for name in names if booting.runs(node, name))
        stopped = tuple(name for name in names if name not in running)
        if stopped:
            return NodeStatus(node, running, stopped, f"{', '.join(stopped)} not running")
        try:
            self._recipe.ready(node, view)
        except NotReady as error:
            return NodeStatus(node, running, stopped, str(error))
        return NodeStatus(node, running, stopped, "")

    def _view(self) -> Cluster:
        places = {name: private.place(name, self._engines) for name in self._recipe.ENGINES}
        running = frozenset(node for node in self.nodes if any(map(processes.leads, self._leaders(node))))
        return Cluster(self.nodes, places, self.nodes[0], running)

    def _boot(self, nodes: Sequence[Node]) -> None:
        started: list[tuple[Node, str]] = []
        try:
            view = self._prepared()
            for stage in self._recipe.stages(view):
                self._boot_stage(stage, [node for node in stage.nodes if node in nodes], view, started)
            for node in nodes:
                self._report(f"{node.name} ({node.host}): a write, a read and a scan")
                booting.wait_for(self._recipe.ready, "a write, a read and a scan", self._recipe, node, view)
        except BaseException:
            self._stop(started)
            raise

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

    def _boot_stage(self, stage: Stage, nodes: Sequence[Node], view: Cluster, started: list[tuple[Node, str]]) -> None:
        for node in nodes:
            if not booting.runs(node, stage.service):
                self._report(f"{node.name} ({node.host}): {stage.service}")
                started.append((node, stage.service))
                self._children.append(booting.start_service(self._service(node, stage.service, view), node))
        for node in nodes:
            booting.wait_for(stage.check, stage.service, self._recipe, node, view, stage.boot_timeout_seconds)

    def _stop(self, services: Sequence[tuple[Node, str]]) -> None:
        """In the reverse of the given order, those of one name at once."""
        view = self._view()
        for name, nodes in groupby(reversed(services), lambda service: service[1]):
            self._report(f"stopping {name}")
            seconds: dict[Leader, float] = {}
            for node, _ in nodes:
                if (leader := Leader.read(booting.record_of(node, name))) is not None:
                    seconds[leader] = self._service(node, name, view).stop_seconds
            processes.stop(seconds)
        self._reap()

    def _service(self, node: Node, name: str, view: Cluster) -> Service:
        return next(service for service in self._recipe.services(node, view) if service.name == name)

    def _leaders(self, node: Node) -> list[Leader]:
        """What was started there last, running or not."""
        return [leader for record in booting.records(node) if (leader := Leader.read(record))]

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.directory / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


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
