"""Starting a view's services stage by stage, and waiting for each with a deadline."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from controller import processes
from controller.processes import Leader
from controller.recipe import Check, Cluster, Command, Node, NotReady, Recipe, Service

_POLL_SECONDS = 0.1
_READY_SECONDS = 180
_SHOWN_LOGS = 2
_SHOWN_LINES = 15
_SHOWN_COLUMNS = 300
_SHOWN_BYTES = 16_000


class BootFailed(Exception):
    """A node did not get ready; the text names it and ends with the last lines of its logs."""


def record_of(node: Node, service: str) -> Path:
    """Where it is written which process a service is."""
    return node.directory / "run" / f"{service}.json"


def records(node: Node) -> list[Path]:
    """Of every service that was started there, running or not."""
    return sorted(record_of(node, "").parent.glob("*.json"))


def clear_records(nodes: Sequence[Node]) -> None:
    """Forgets the services that have ended, and ends what they have left behind: a database's own children."""
    for record in (record for node in nodes for record in records(node)):
        leader = Leader.read(record)
        if leader is not None and not processes.leads(leader):
            processes.kill(leader)
            record.unlink()


def runs(node: Node, service: str) -> bool:
    """Whether the process itself lives."""
    leader = Leader.read(record_of(node, service))
    return leader is not None and processes.leads(leader)


def write_files(recipe: Recipe, cluster: Cluster) -> None:
    """Every node's directories and configuration."""
    for node in cluster.nodes:
        for directory in (node.conf, node.data, node.log, record_of(node, "").parent):
            directory.mkdir(parents=True, exist_ok=True)
        for path, text in recipe.files(node, cluster).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if text.startswith("#!"):
                path.chmod(0o755)


def run_command(command: Command, node: Node) -> None:
    """Raises BootFailed if it fails."""
    done = subprocess.run(  # noqa: S603 - a recipe of ours, no shell
        command.arguments,
        cwd=node.directory,
        env={**os.environ, **command.environment},
        input=command.text.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    with (node.log / "first-boot.log").open("ab") as log:
        log.write(done.stdout)
    if done.returncode:
        raise BootFailed(
            f"{node.name} ({node.host}): {' '.join(command.arguments)} failed with {done.returncode}"
            + _shown([node.log / "first-boot.log"])
        )


def start_service(service: Service, node: Node) -> subprocess.Popen[bytes]:
    """The process is a child of ours until we end, and lives on then."""
    log = node.log / f"{service.name}.log"
    return processes.start(service.command, record_of(node, service.name), log, node.directory, service.environment)


def wait_for(
    check: Check, what: str, recipe: Recipe, node: Node, cluster: Cluster, seconds: float = _READY_SECONDS
) -> None:
    """Raises BootFailed when `check` has not passed in time, or a service that was started there has ended."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            check(node, cluster)
        except NotReady as error:
            found = str(error)
        else:
            return
        ended = [service.name for service in recipe.services(node, cluster) if _ended(node, service.name)]
        if ended or time.monotonic() > deadline:
            why = f"{', '.join(ended)} ended" if ended else f"not within {seconds:.0f} s"
            logs = telling(recipe.log_files(node), ended or [what])
            raise BootFailed(f"{node.name} ({node.host}): {what}: {why}; {found}{_shown(logs)}")
        time.sleep(_POLL_SECONDS)


def telling(logs: Sequence[Path], services: Sequence[str]) -> Sequence[Path]:
    """The logs of these services, or else those that a recipe puts first."""
    return [log for log in logs if log.stem in services] or logs[:_SHOWN_LOGS]


def _ended(node: Node, service: str) -> bool:
    return record_of(node, service).exists() and not runs(node, service)


def _shown(logs: Sequence[Path]) -> str:
    return "".join(f"\n--- {path}\n{_last_lines(path)}" for path in logs if path.exists())


def _last_lines(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - _SHOWN_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(line[:_SHOWN_COLUMNS] for line in lines[-_SHOWN_LINES:])
