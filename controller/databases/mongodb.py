"""MongoDB's protocol served by FerretDB on SQLite: one server. No package registry has MongoDB itself."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.recipe import (
    Cluster,
    Command,
    Membership,
    Needs,
    Node,
    NotReady,
    Service,
    Stage,
    first_node,
    needs_no_leave,
    nothing_on_disk,
    runs_nothing,
)

if TYPE_CHECKING:
    from pymongo import MongoClient

ENGINES = ("ferretdb",)
MOST_NODES = 1
MEMBERSHIP = Membership()

PORT = 27017
DATABASE = "pbserver"
_ANSWER_SECONDS = 5


def files(node: Node, cluster: Cluster) -> Mapping[Path, str]:
    del node, cluster
    return {}


def services(node: Node, cluster: Cluster) -> Sequence[Service]:
    program = cluster.engines["ferretdb"] / "ferretdb"
    return [Service("ferretdb", (str(program), f"--listen={node.host}:{PORT}", f"--data={node.data}/"))]


def needs(node: Node, cluster: Cluster) -> Needs:
    del node, cluster
    return Needs(256, {PORT: "MongoDB's protocol"})


def stages(cluster: Cluster) -> Sequence[Stage]:
    return [Stage("ferretdb", cluster.nodes, greets)]


def first_boot(primary: Node, cluster: Cluster) -> Sequence[Command]:
    del primary, cluster
    return []


def log_files(node: Node) -> Sequence[Path]:
    return [node.log / "ferretdb.log"]


def store_urls(cluster: Cluster) -> Sequence[str]:
    """The primary's only. Our build of FerretDB takes one write at a time (controller/engines/ferretdb)."""
    return [f"mongodb:{cluster.primary.host}:{PORT}/{DATABASE}?one_writer=yes"]


on_disk = nothing_on_disk
primary_of = first_node
let_begin = needs_no_leave
admission = runs_nothing
departure = runs_nothing


def choose_primary(cluster: Cluster) -> Node:
    return cluster.nodes[0]


def greets(node: Node, cluster: Cluster) -> None:
    """That it answers the first question of every client."""
    del cluster
    with _client(node) as client:
        client.admin.command("hello")


def ready(node: Node, cluster: Cluster) -> None:
    del cluster
    with _client(node) as client:
        rows = client[DATABASE]["pbserver_ready"]
        rows.replace_one({"_id": node.name}, {"_id": node.name, "v": "written"}, upsert=True)
        read = rows.find_one({"_id": node.name}) or {}
        scanned: dict[str, Any] = next(iter(rows.find({"_id": {"$gte": node.name}}).sort("_id").limit(1)), {})
        if [row.get("v") for row in (read, scanned)] != ["written", "written"]:
            raise NotReady(f"{node.host}:{PORT} returns {read} and {scanned} for what was written")


@contextmanager
def _client(node: Node) -> "Iterator[MongoClient[dict[str, Any]]]":
    """Raises NotReady."""
    from pymongo import MongoClient
    from pymongo.errors import PyMongoError

    client: MongoClient[dict[str, Any]] = MongoClient(
        node.host,
        PORT,
        directConnection=True,
        serverSelectionTimeoutMS=_ANSWER_SECONDS * 1000,
        socketTimeoutMS=_ANSWER_SECONDS * 1000,
    )
    try:
        yield client
    except PyMongoError as error:
        raise NotReady(f"{node.host}:{PORT}: {error}") from error
    finally:
        client.close()
