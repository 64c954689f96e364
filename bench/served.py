"""PBServers on the stores that are measured, and what can be killed there."""

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from rich.markup import escape

from bench import server, stores
from bench.calls import Calls
from bench.client import Load, Sample
from bench.drive import Drive, split
from bench.line import Address
from bench.measure import LoadFailed
from bench.run import Run
from bench.server import Server, ServerFailed

if TYPE_CHECKING:
    from controller.local import LocalCluster

_BACK_SECONDS = 60.0
_POLL_SECONDS = 0.02
_BUSY = 0.9


class Victim(Protocol):
    """What is killed while it is measured. Both return what they did, in a few words."""

    returns: bool  #: by itself, at once

    def kill(self) -> str: ...

    def bring_back(self) -> str:
        """Returns when it serves again. Raises ServerFailed if it does not."""
        ...


@dataclass(frozen=True, slots=True)
class Served:
    store: str  #: as results name it
    nodes: int
    addresses: tuple[Address, ...]
    patient: bool  #: others than the PBServer need the cores too
    victim: Victim | None = None

    @property
    def named(self) -> dict[str, Any]:
        """What every result of it says."""
        return {"store": self.store, "nodes": self.nodes}

    def call(self, requests: Iterable[bytes]) -> list[bytes]:
        """One after the other. Raises ServerFailed."""
        return server.call(self.addresses[0], requests)

    @contextmanager
    def drive(self, bench: Run, load: Load, calls: Callable[[int, int], Calls]) -> Iterator[Drive]:
        """The load, by a generator on each core that is free for one; `calls(number, of)`: what each of them sends."""
        load = replace(load, addresses=self.addresses, patient=self.patient)
        with Drive(split(load, calls, len(bench.client_cores)), bench.client_cores) as drive:
            yield drive

    def measure(
        self, bench: Run, title: str, load: Load, calls: Callable[[int, int], Calls], operations: int = 0
    ) -> Sample:
        """From start to end, with its progress shown; `operations`: how many there will be, if that is known otherwise
        than from the load. Raises LoadFailed, also when no operation succeeded.
        """
        operations = operations or load.operations
        with bench.step(title, operations or load.seconds) as step, self.drive(bench, load, calls) as drive:
            began = time.monotonic()
            drive.start(lambda done: step(done if operations else time.monotonic() - began))
            sample = drive.finish()
        if not sample.all.latencies.count:
            raise LoadFailed(f"no operation succeeded: {dict(sample.all.errors)}")
        if sample.busy > _BUSY:
            bench.say(f"[yellow]{title}: a load generator was busy {sample.busy:.0%} of the time; more may be possible")
        return sample


def on_each_store(bench: Run, measure: Callable[[str], None]) -> None:
    """One store after the other, whatever becomes of those before. Raises ServerFailed for all that failed."""
    failures = []
    for store in bench.stores:
        try:
            measure(store)
        except (LoadFailed, ServerFailed) as error:
            failures.append(f"{stores.label(store)}: {error}")
            bench.say(f"[red]{escape(failures[-1])}")
    if failures:
        raise ServerFailed("; ".join(failures))


@contextmanager
def served(bench: Run, store: str, *, workers: int = 1) -> Iterator[Served]:
    """One of `bench.stores`. `workers`: of the PBServer that is started, where one is. Raises ServerFailed."""
    name, nodes = stores.label(store), bench.asked.nodes
    if store.startswith(stores.SERVER):
        yield Served(name, nodes, (stores.address(store),), patient=True)
    elif store.startswith(stores.CLUSTER):
        with _cluster(bench, store.removeprefix(stores.CLUSTER)) as cluster:
            urls = [urlsplit(url) for url in cluster.pbserver_urls().values()]
            addresses = tuple(Address(url.hostname or "", url.port or 0) for url in urls)
            yield Served(name, nodes, addresses, patient=True, victim=Node(cluster))
    else:
        with server.pbserver(bench.store_url(store), bench.server_core, workers=workers) as ours:
            victim = Worker(ours) if workers > 1 else None
            yield Served(name, nodes, (ours.address,), patient=store != stores.EMBEDDED, victim=victim)


@contextmanager
def _cluster(bench: Run, name: str) -> Iterator["LocalCluster"]:
    try:
        from controller.engines.tools import EngineError
        from controller.local import BootFailed, ClusterError, LocalCluster
    except ModuleNotFoundError as error:
        raise ServerFailed(f"cannot boot {name}: {error}; pip install 'pbserver[deploy]'") from error
    try:
        cluster = LocalCluster.up(name, bench.asked.nodes, bench.directory / name, pbserver=True)
    except (BootFailed, ClusterError, EngineError) as error:
        raise ServerFailed(str(error)) from error
    with cluster:
        if refusal := cluster.pbserver_refusal():
            raise ServerFailed(f"no PBServer on {name}: {refusal}")
        bench.say(f"[dim]{name} serves on {', '.join(cluster.pbserver_urls().values())}")
        yield cluster


class Worker:
    """One of several workers of a PBServer, the one with the most clients. The supervisor starts another."""

    returns = True

    def __init__(self, ours: Server) -> None:
        self._server = ours
        self._count = len(ours.workers())

    def kill(self) -> str:
        busiest = max(self._server.workers(), key=lambda worker: len(worker.net_connections()))
        busiest.send_signal(signal.SIGKILL)
        busiest.wait(_BACK_SECONDS)
        return "a worker killed"

    def bring_back(self) -> str:
        until = time.monotonic() + _BACK_SECONDS
        while len(self._server.workers()) < self._count:
            if time.monotonic() > until:
                raise ServerFailed(f"the killed worker was not replaced within {_BACK_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
        return "another worker started"


class Node:
    """The last node of a cluster, with its PBServer; it is started again."""

    returns = False

    def __init__(self, cluster: "LocalCluster") -> None:
        self._cluster = cluster
        self._node = cluster.nodes[-1]

    def kill(self) -> str:
        self._cluster.kill(self._node)
        return f"{self._node.name} killed"

    def bring_back(self) -> str:
        from controller.local import BootFailed

        try:
            self._cluster.start(self._node)
        except BootFailed as error:
            raise ServerFailed(str(error)) from error
        return f"{self._node.name} serves"
