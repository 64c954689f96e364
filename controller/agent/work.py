"""What an agent does in a process of its own that ends with it: a Task on standard input, a Done on standard output.

Drivers, templates and engines are imported here, not in the agent, which stays small; and whatever hangs is killed
with the process.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from controller import booting
from controller.agent import files
from controller.agent.home import Home
from controller.agent.messages import Done, Task
from controller.agent.parts import Parts
from controller.booting import BootFailed
from controller.causes import cause
from controller.engines import private
from controller.engines.tools import EngineError
from controller.recipe import Command, Node, NotReady, Service

_SHOWN_LINES = 15
_TRY_SECONDS = 4
_PAUSE_SECONDS = 0.5
#: For supervisord. Only the leader gets SIGTERM: PBServer's workers and mariadbd's copiers are their parents' to stop.
_PROGRAM = """[program:{name}]
command={python} -m controller.agent.launch {program} {begins}
autostart=false
autorestart=true
startsecs=1
startretries=5
stopwaitsecs={seconds:.0f}
killasgroup=true
stdout_logfile=NONE
redirect_stderr=true

"""


def main() -> None:
    task = Task.model_validate_json(sys.stdin.read())
    try:
        done = Done(ok=True, text=TASKS[task.task](Parts(task.layout), task.number, task.argument))
    except (NotReady, BootFailed, EngineError, OSError) as error:
        done = Done(ok=False, text=cause(error))
    sys.stdout.write(done.model_dump_json())


def prepare(parts: Parts, number: int, argument: str) -> str:
    """Fetches engines, makes directories, writes all configuration; the diffs of what has changed."""
    del argument
    node, home = parts.nodes[number], Home(parts.nodes[number].directory)
    for directory in (node.conf, node.data, node.log, home.prepared.parent):
        directory.mkdir(parents=True, exist_ok=True)
    with _alone(home, "work"):
        for recipe in parts.recipes_of(number):
            for engine in recipe.ENGINES:
                private.fetch(engine, parts.layout.engines_directory)
        cluster = parts.cluster(running=parts.data_nodes)
        diff = "".join(files.write_all(recipe.files(node, cluster)) for recipe in parts.recipes_of(number))
        diff += files.write_all(_programs(parts, number))
        files.write(home.layout, parts.layout.model_dump_json())
        files.write(home.written, parts.digest)
    return diff


def first_boot(parts: Parts, number: int, argument: str) -> str:
    """Makes the node's empty data directory usable, once."""
    del argument
    node, home = parts.nodes[number], Home(parts.nodes[number].directory)
    with _alone(home, "work"):
        if not home.first_boot.exists():
            for command in parts.recipe.first_boot(node, parts.cluster(primary=number)):
                booting.run_command(command, node)
            home.first_boot.touch()
    return ""


def on_disk(parts: Parts, number: int, argument: str) -> str:
    del argument
    return parts.recipe.on_disk(parts.nodes[number], parts.cluster())


def let_begin(parts: Parts, number: int, argument: str) -> str:
    """`argument`: the node's own on_disk."""
    parts.recipe.let_begin(parts.nodes[number], argument)
    return ""


def check(parts: Parts, number: int, argument: str) -> str:
    """`argument`: the stage's service, or READY. Tried again for a while: what a check needs takes longer to import
    than to ask.
    """
    passes, cluster = parts.check(argument), parts.cluster(running=parts.data_nodes)
    end = time.monotonic() + _TRY_SECONDS
    while True:
        try:
            passes(parts.nodes[number], cluster)
        except NotReady:
            if time.monotonic() >= end:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return ""


def admit(parts: Parts, number: int, argument: str) -> str:
    """Lets in the nodes of the layout, and nobody else."""
    del argument
    node = parts.nodes[number]
    for command in parts.recipe.admission(node, parts.cluster(running=parts.data_nodes)):
        _run(command, node)
    return ""


def leave(parts: Parts, number: int, argument: str) -> str:
    """Moves the node's data to the others, once; whoever asks meanwhile waits for the same."""
    del argument
    node, home = parts.nodes[number], Home(parts.nodes[number].directory)
    with _alone(home, "leave"):
        if not home.left.exists():
            for command in parts.recipe.departure(node, parts.cluster(running=parts.data_nodes)):
                _run(command, node, home.leaving)
            home.left.touch()
    return ""


@contextmanager
def _alone(home: Home, what: str) -> Iterator[None]:
    """One process at a time is within the block for the same node and `what`."""
    with (home.directory / "run" / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: Command, node: Node, telling: Path | None = None) -> None:
    """`telling`: a file that has the last line it has said. Raises BootFailed with the last of them, if it fails."""
    process = subprocess.Popen(  # noqa: S603 - a recipe of ours, no shell
        command.arguments,
        cwd=node.directory,
        env={**os.environ, **command.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    said: deque[str] = deque(maxlen=_SHOWN_LINES)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(command.text)
        process.stdin.close()
        for line in process.stdout:
            said.append(line)
            if telling is not None:
                files.write(telling, line.strip())
    if process.returncode:
        name = Path(command.arguments[0]).name
        raise BootFailed(f"{name} ended with {process.returncode}: {''.join(said).strip()}")


def _programs(parts: Parts, number: int) -> dict[Path, str]:
    node, home = parts.nodes[number], Home(parts.nodes[number].directory)
    beginning = parts.services(number, parts.cluster(primary=number if number in parts.data_nodes else 1))
    cluster = parts.cluster(running=parts.data_nodes)
    usual = parts.services(number, cluster)
    settings = {
        service.name: "".join(recipe.files(node, cluster).values())
        for recipe in parts.recipes_of(number)
        for service in recipe.services(node, cluster)
    }
    texts = {home.program(name): _program(home, each, beginning[name], settings[name]) for name, each in usual.items()}
    conf = "".join(
        _PROGRAM.format(
            name=name,
            python=sys.executable,
            program=home.program(name),
            begins=home.begins(name),
            seconds=each.stop_seconds,
        )
        for name, each in usual.items()
    )
    return {**texts, home.services: conf}


def _program(home: Home, usual: Service, beginning: Service, settings: str) -> str:
    program = {
        "command": usual.command,
        "beginning": beginning.command if beginning.command != usual.command else None,
        "environment": dict(usual.environment),
        "directory": str(home.directory),
        "log": str(home.log / f"{usual.name}.log"),
        "mark": f"{home.directory}/{usual.name}",
        "digest": hashlib.sha256(settings.encode()).hexdigest(),
    }
    return json.dumps(program, indent=1) + "\n"


TASKS: dict[str, Callable[[Parts, int, str], str]] = {
    each.__name__: each for each in (prepare, first_boot, on_disk, let_begin, check, admit, leave)
}

if __name__ == "__main__":
    main()
