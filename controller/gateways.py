"""A PBServer at every entry point of a cluster, beside the database's own processes and with the parts of a recipe."""

import sys
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from adapters.build import open_store
from adapters.errors import StoreError, Unsupported
from adapters.registry import STORES
from controller.recipe import Cluster, Command, Needs, Node, NotReady, Recipe, Service, Stage

NAME = "pbserver"
#: PBServer's own defaults, here on the node's address.
PORT = 10001
ADMIN_PORT = 10002
_ANSWER_SECONDS = 5


def refusal(database: str, url: str) -> str:
    """Why no PBServer can use a database that is up at this store URL; empty: it can, or will say itself why not."""
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

    def needs(self, node: Node) -> Needs:
        del node
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
        connection = HTTPConnection(node.host, ADMIN_PORT, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            found = answer.read().decode(errors="replace").strip()
        except (OSError, HTTPException) as error:
            raise NotReady(f"{node.host}:{ADMIN_PORT}: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise NotReady(f"{NAME}: {found}")

    def _urls(self, cluster: Cluster) -> dict[Node, str]:
        """Entry points and what the PBServer there opens."""
        return dict(zip(cluster.nodes, self._database.store_urls(cluster), strict=False))
