"""A PBServer at every entry point of a cluster, beside the database's own processes and with the parts of a recipe."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from controller.layout import Layout
from controller.recipe import (
    Cluster,
    Command,
    Membership,
    Needs,
    Node,
    NotReady,
    Recipe,
    Service,
    Stage,
    first_node,
    needs_no_leave,
    nothing_on_disk,
    runs_nothing,
)

NAME = "pbserver"
#: PBServer's own defaults, here on the node's address.
PORT = 10001
ADMIN_PORT = 10002
#: What gateways speak HTTPS with, among the files that pbdeploy places for the agent.
TLS_FILES = {"cert": "gateway.pem", "key": "gateway.key"}
_ANSWER_SECONDS = 5
_HOST_SECONDS = 120


def refusal(database: str, url: str) -> str:
    """Why no PBServer can use a database that is up at this store URL; empty: it can, or will say itself why not."""
    from adapters.build import open_store
    from adapters.errors import StoreError, Unsupported
    from adapters.registry import STORES

    if database not in STORES:
        return f"there is no adapter for {database} yet"
    try:
        open_store(url).close()
    except Unsupported as error:
        return str(error)
    except StoreError:
        pass
    return ""


class Gateways:
    """The recipe of the PBServers of `database`'s cluster, to be booted once that is ready. Nodes that are no entry
    point have none.
    """

    ENGINES: tuple[str, ...] = ()
    MEMBERSHIP = Membership(does_without=True)
    on_disk = staticmethod(nothing_on_disk)
    primary_of = staticmethod(first_node)
    let_begin = staticmethod(needs_no_leave)
    admission = staticmethod(runs_nothing)
    departure = staticmethod(runs_nothing)

    def __init__(self, database: Recipe) -> None:
        self.MOST_NODES = database.MOST_NODES
        self._database = database

    def files(self, node: Node, cluster: Cluster) -> Mapping[Path, str]:
        del node, cluster
        return {}

    def services(self, node: Node, cluster: Cluster) -> Sequence[Service]:
        url = self._urls(cluster).get(node)
        if url is None:
            return []
        # One worker: the nodes of a local cluster share the cores of one machine.
        places = ("--listen", f"{node.host}:{PORT}", "--admin", f"{node.host}:{ADMIN_PORT}", "--workers", "1")
        command = (sys.executable, "-m", "pbserver", "serve", *places, "--store", url)
        return [Service(NAME, command, stop_seconds=15)]

    def needs(self, node: Node, cluster: Cluster) -> Needs:
        del node, cluster
        return Needs(256, {PORT: "apps", ADMIN_PORT: "health and metrics"})

    def stages(self, cluster: Cluster) -> Sequence[Stage]:
        return [Stage(NAME, tuple(self._urls(cluster)), self.ready, boot_timeout_seconds=60)]

    def first_boot(self, primary: Node, cluster: Cluster) -> Sequence[Command]:
        del primary, cluster
        return []

    def log_files(self, node: Node) -> Sequence[Path]:
        return [node.log / f"{NAME}.log"]

    def store_urls(self, cluster: Cluster) -> Sequence[str]:
        return self._database.store_urls(cluster)

    def choose_primary(self, cluster: Cluster) -> Node:
        return cluster.primary

    def ready(self, node: Node, cluster: Cluster) -> None:
        """That its worker has had an answer from the store a moment ago."""
        if node not in self._urls(cluster):
            return
        host, port = self._admin(node)
        connection = HTTPConnection(host, port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            found = answer.read().decode(errors="replace").strip()
        except (OSError, HTTPException) as error:
            raise NotReady(f"{host}:{port}: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise NotReady(f"{NAME}: {found}")

    def _admin(self, node: Node) -> tuple[str, int]:
        return node.host, ADMIN_PORT

    def _urls(self, cluster: Cluster) -> dict[Node, str]:
        """Entry points and what the PBServer there opens."""
        return dict(zip(cluster.nodes, self._database.store_urls(cluster), strict=False))


class HostGateways(Gateways):
    """Those of a layout: on the nodes it says, on the ports it says, with settings in a file and a worker per core."""

    def __init__(self, database: Recipe, layout: Layout) -> None:
        super().__init__(database)
        self._ports = layout.ports
        self._tls = layout.tls is not None
        self._hosts = {each.address for each in layout.gateways}
        self._nodes = layout.every_node()

    def files(self, node: Node, cluster: Cluster) -> Mapping[Path, str]:
        url = self._urls(cluster).get(node)
        if url is None:
            return {}
        host = f"[{node.host}]" if ":" in node.host else node.host
        admin_host, admin_port = self._admin(node)
        values = {
            "listen": f"{host}:{self._ports.pbserver}",
            "admin": f"{admin_host}:{admin_port}",
            "store": url,
        }
        if self._tls:
            values |= {f"tls_{name}": str(node.directory / "agent" / file) for name, file in TLS_FILES.items()}
        return {settings_file(node): "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())}

    def services(self, node: Node, cluster: Cluster) -> Sequence[Service]:
        if node not in self._urls(cluster):
            return []
        command = (sys.executable, "-m", "pbserver", "serve", "--config", str(settings_file(node)))
        return [Service(NAME, command, stop_seconds=15)]

    def stages(self, cluster: Cluster) -> Sequence[Stage]:
        """The first one alone makes a new store's tables: Cassandra's schema does not bear several who do."""
        nodes = tuple(self._urls(cluster))
        return [Stage(NAME, each, self.ready, _HOST_SECONDS) for each in (nodes[:1], nodes[1:]) if each]

    def _admin(self, node: Node) -> tuple[str, int]:
        return "127.0.0.1", self._ports.admin

    def _urls(self, cluster: Cluster) -> dict[Node, str]:
        """One beside the database enters at its own node first, the others share the entry points between them. None
        enters at a node that is leaving.
        """
        staying = tuple(node for node in cluster.nodes if node not in cluster.leaving)
        urls = self._database.store_urls(replace(cluster, nodes=staying))
        own = dict(zip(staying, urls, strict=False))
        gateways = [node for node in self._nodes if node.host in self._hosts]
        return {node: own.get(node) or urls[(node.number - 1) % len(urls)] for node in gateways}


def settings_file(node: Node) -> Path:
    """Of a layout's PBServer."""
    return node.conf / f"{NAME}.toml"
