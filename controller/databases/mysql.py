"""MySQL as a MariaDB Galera cluster: every node takes writes; one begins the cluster, the others copy its data.

A single node is a MariaDB without Galera.
"""

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.recipe import Cluster, Command, Membership, Needs, Node, NotReady, Service, Stage, runs_nothing
from controller.rendering import render

ENGINES = ("mariadb",)
MOST_NODES = 9
MEMBERSHIP = Membership(does_without=True, fewest=2)  # one alone is no Galera

PORT = 3306
DATABASE = "pbserver"
USER = "pbserver"
_ANSWER_SECONDS = 5
_STATE = "grastate.dat"
_NO_POSITION = -1
_LAST = "last"
_FIELD = re.compile(r"^(seqno|safe_to_bootstrap):\s*(-?\d+)\s*$", re.MULTILINE)
_RECOVERED = re.compile(r"WSREP: Recovered position: \S+:(-?\d+)")
_PROBE = (
    "CREATE TABLE IF NOT EXISTS pbserver_ready (k VARBINARY(64) PRIMARY KEY, v VARBINARY(64))",
    "REPLACE INTO pbserver_ready VALUES (%s, 'written')",
)


@dataclass(frozen=True, slots=True)
class GaleraState:
    """What a node wrote down when it stopped; `position` is -1 if it was killed."""

    position: int
    last_to_stop: bool


def files(node: Node, cluster: Cluster) -> Mapping[Path, str]:
    tree = cluster.engines["mariadb"]
    return {
        _config(node): render("galera.cnf.j2", node=node, hosts=cluster.hosts, port=PORT, tree=tree, user=_account()),
        node.conf / "first-boot.sql": render(
            "galera-first-boot.sql.j2", database=DATABASE, user=USER, places=_places(cluster)
        ),
        node.conf / "bin" / "rsync": render("rsync.sh.j2", rsync=tree / "usr/bin/rsync"),
    }


def services(node: Node, cluster: Cluster) -> Sequence[Service]:
    founder = node == cluster.primary and not cluster.running and not _is_alone(cluster)
    begins = ("--wsrep-new-cluster",) if founder else ()
    return [Service("mariadbd", (*_mariadbd(node, cluster), *begins), _environment(node, cluster), stop_seconds=20)]


def needs(node: Node, cluster: Cluster) -> Needs:
    del node, cluster
    return Needs(512, {PORT: "SQL", 4567: "other nodes", 4568: "missed writes", 4444: "a copy of all data"})


def stages(cluster: Cluster) -> Sequence[Stage]:
    """Joiners together: when most nodes have died at once, the rest serves again only after all of them are back."""
    first = () if cluster.running else (cluster.primary,)
    others = tuple(node for node in cluster.nodes if node not in first)
    return [Stage("mariadbd", nodes, synced) for nodes in (first, others) if nodes]


def first_boot(primary: Node, cluster: Cluster) -> Sequence[Command]:
    tree = cluster.engines["mariadb"]
    arguments = (
        str(tree / "usr/bin/mariadb-install-db"),
        "--no-defaults",
        f"--basedir={tree / 'usr'}",
        f"--datadir={primary.data}",
        f"--user={_account()}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        f"--extra-file={primary.conf / 'first-boot.sql'}",
    )
    return [Command(arguments, _environment(primary, cluster))]


def admission(node: Node, cluster: Cluster) -> Sequence[Command]:
    """Accounts are data: what one node does all do, and a joiner copies."""
    program = cluster.engines["mariadb"] / "usr/bin/mariadb"
    socket = node.data.relative_to(node.directory) / "mariadbd.sock"  # a longer path might be too long for a socket
    sql = render("galera-members.sql.j2", database=DATABASE, user=USER, places=_places(cluster))
    arguments = (str(program), "--no-defaults", "--user=root", f"--socket={socket}")
    return [Command(arguments, _environment(node, cluster), sql)]


departure = runs_nothing  # every node has all rows; one that stops says so, and the others need it for no majority


def log_files(node: Node) -> Sequence[Path]:
    return [node.log / "mariadbd.log"]


def store_urls(cluster: Cluster) -> Sequence[str]:
    return [f"mysql:{places}/{DATABASE}?user={USER}" for places in cluster.entry_points(PORT)]


def on_disk(node: Node, cluster: Cluster) -> str:
    """`last` of the node that was the last to stop, otherwise its position, empty where there is no data."""
    if not _state(node).exists():
        return ""
    state = galera_state(_state(node).read_text())
    if state.last_to_stop:
        return _LAST
    return str(_recovered(node, cluster) if state.position == _NO_POSITION else state.position)


def primary_of(found: Mapping[Node, str], cluster: Cluster) -> Node:
    """The node that knows every transaction: the last to stop, or after a crash the one with the highest position."""
    last = [node for node, state in found.items() if state == _LAST]
    if last:
        return last[0]
    if unheard := [node.name for node in cluster.nodes if node not in found]:
        raise NotReady(f"{', '.join(unheard)} may know more than the others, and must be heard first")
    positions = {node: int(state) for node, state in found.items() if state}
    return most_advanced(positions) if positions else cluster.nodes[0]


def let_begin(node: Node, found: str) -> None:
    """Which position it begins at: so the cluster keeps its name, by which clients that are still there know it."""
    if found not in ("", _LAST):
        _state(node).write_text(allowed_to_begin(_state(node).read_text(), int(found)))


def choose_primary(cluster: Cluster) -> Node:
    found = {node: on_disk(node, cluster) for node in cluster.nodes}
    chosen = primary_of(found, cluster)
    let_begin(chosen, found[chosen])
    return chosen


def galera_state(text: str) -> GaleraState:
    """From the text of grastate.dat."""
    fields = dict(_FIELD.findall(text))
    return GaleraState(int(fields.get("seqno", _NO_POSITION)), fields.get("safe_to_bootstrap") == "1")


def allowed_to_begin(text: str, position: int) -> str:
    """The text of grastate.dat that lets the node go on with its cluster at a position.

    Without one (-1) Galera gives the cluster a new name (wsrep_cluster_state_uuid).
    """
    text = re.sub(r"^seqno:.*$", f"seqno:   {position}", text, flags=re.MULTILINE)
    return re.sub(r"^safe_to_bootstrap:.*$", "safe_to_bootstrap: 1", text, flags=re.MULTILINE)


def recovered_position(output: str) -> int:
    """From what `mariadbd --wsrep-recover` prints; -1 if it found none."""
    return max((int(position) for position in _RECOVERED.findall(output)), default=_NO_POSITION)


def most_advanced(positions: Mapping[Node, int]) -> Node:
    """The first of those with the highest position."""
    return max(positions, key=lambda node: (positions[node], -node.number))


def synced(node: Node, cluster: Cluster) -> None:
    """That the node has the others' data and takes part."""
    if _is_alone(cluster):
        ready(node, cluster)
        return
    rows = _ask(node, "", ["SHOW STATUS LIKE 'wsrep_local_state_comment'"])
    if rows != [("wsrep_local_state_comment", "Synced")]:
        raise NotReady(f"{node.host}:{PORT}: {rows}")


def ready(node: Node, cluster: Cluster) -> None:
    del cluster
    create, write = _PROBE
    read = "SELECT v FROM pbserver_ready WHERE k = '{0}'"
    scan = "SELECT v FROM pbserver_ready WHERE k >= '{0}' ORDER BY k LIMIT 1"
    for query in (read, scan):
        rows = _ask(node, DATABASE, [create, write.replace("%s", f"'{node.name}'"), query.format(node.name)])
        if rows != [(b"written",)]:
            raise NotReady(f"{node.host}:{PORT} returns {rows} for what was written")


def _ask(node: Node, database: str, statements: Iterable[str]) -> list[tuple[object, ...]]:
    """The rows of the last statement. Raises NotReady."""
    import pymysql

    try:
        connection = pymysql.connect(
            host=node.host,
            port=PORT,
            user=USER,
            database=database or None,
            autocommit=True,
            connect_timeout=_ANSWER_SECONDS,
            read_timeout=_ANSWER_SECONDS,
            write_timeout=_ANSWER_SECONDS,
        )
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())
    except pymysql.Error as error:
        raise NotReady(f"{node.host}:{PORT}: {error}") from error


def _is_alone(cluster: Cluster) -> bool:
    return len(cluster.nodes) == 1


def _recovered(node: Node, cluster: Cluster) -> int:
    """Asks the storage engine of a node that was killed; -1 if it has nothing, as after a broken copy."""
    command = [*_mariadbd(node, cluster), "--wsrep-recover"]
    done = subprocess.run(  # noqa: S603 - a command of ours, no shell
        command, env={**os.environ, **_environment(node, cluster)}, capture_output=True, check=False
    )
    return recovered_position((done.stdout + done.stderr).decode(errors="replace"))


def _mariadbd(node: Node, cluster: Cluster) -> tuple[str, ...]:
    return str(cluster.engines["mariadb"] / "usr/sbin/mariadbd"), f"--defaults-file={_config(node)}"


def _config(node: Node) -> Path:
    return node.conf / "galera.cnf"


def _state(node: Node) -> Path:
    return node.data / _STATE


def _environment(node: Node, cluster: Cluster) -> dict[str, str]:
    """For unpacked packages: where their libraries and commands are; our rsync before theirs."""
    tree = cluster.engines["mariadb"]
    libraries = [tree / top / f"{platform.machine()}-linux-gnu" for top in ("usr/lib", "lib")]
    commands = [tree / top for top in ("usr/sbin", "usr/bin", "sbin", "bin")]
    return {
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        "PATH": ":".join([str(node.conf / "bin"), *map(str, commands), os.environ["PATH"]]),
    }


def _places(cluster: Cluster) -> list[str]:
    """From where clients may come, for there are no passwords: from this machine, or from the members alone."""
    hosts = sorted({*cluster.hosts, *cluster.clients})
    return ["127.%"] if all(host.startswith("127.") for host in hosts) else hosts


def _account() -> str:
    """mariadbd refuses to run as root unless told to."""
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name
