"""A layout's machines over SSH: install.py's functions on all of them at once, and questions to the head."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from controller.agent.messages import Done, Message, Since, Status, Stop, Want
from controller.hosts import ssh
from controller.hosts.ssh import Unreachable
from controller.layout import Layout
from controller.recipe import ClusterError, Node
from pbserver import __version__

_PROGRAM = Path(ssh.__file__).with_name("install.py").read_text(encoding="utf-8")
_ANSWER_SECONDS = 20
_STOP_SECONDS = 200  # some databases write out what they hold first

_Answer = TypeVar("_Answer", bound=Message)


class Machines:
    """Of one layout. Every call opens connections of its own, so nothing is left open."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.nodes = layout.every_node()
        self.head = self.nodes[0]
        self.unit = f"pbserver-{layout.name}.service"

    def chosen(self, name: str) -> list[Node]:
        """The node of that name or address; all for the empty one. Raises ClusterError."""
        found = [each for each in self.nodes if name in ("", each.name, each.host)]
        if not found:
            raise ClusterError(f"there is no node {name}; nodes: {', '.join(map(named, self.nodes))}")
        return found

    def tried(self, act: str, arguments: Mapping[Node, Mapping[str, object]]) -> dict[Node, dict[str, Any]]:
        """What each says; `error` in place of an answer."""
        if not arguments:
            return {}
        with ThreadPoolExecutor(len(arguments)) as pool:
            return dict(zip(arguments, pool.map(lambda each: self._one(act, *each), arguments.items()), strict=True))

    def do(self, act: str, arguments: Mapping[Node, Mapping[str, object]]) -> dict[Node, dict[str, Any]]:
        """Raises ClusterError naming every node on which it did not work."""
        said = self.tried(act, arguments)
        wrong = [f"{named(node)}: {each['error']}" for node, each in said.items() if "error" in each]
        if wrong:
            raise ClusterError("; ".join(wrong))
        return said

    def everywhere(self, act: str, **arguments: object) -> dict[Node, dict[str, Any]]:
        """The same on all nodes. Raises ClusterError."""
        return self.do(act, dict.fromkeys(self.nodes, arguments))

    def status(self, since: Since | None = None) -> Status:
        """Raises ClusterError."""
        return self.ask("status", since or Since())

    def ask(self, name: str, asked: Message) -> Status:
        """Puts a question to the head. Raises ClusterError."""
        return self._put(self.head, name, asked, Status, _ANSWER_SECONDS)

    def refusal(self, want: Want) -> str:
        """Why the head cannot have the cluster up like that; empty: it can. Raises ClusterError."""
        return self._put(self.head, "may", want, Done, _ANSWER_SECONDS).text

    def stop(self, node: Node, service: str) -> None:
        """Has a node's agent stop a service, which the head starts again. Raises ClusterError."""
        done = self._put(node, "stop", Stop(service=service), Done, _STOP_SECONDS)
        if not done.ok:
            raise ClusterError(f"{named(node)}: stop {service}: {done.text}")

    def _put(self, node: Node, name: str, asked: Message, answer: type[_Answer], seconds: float) -> _Answer:
        call = {"name": name, "body": asked.model_dump_json(), "seconds": seconds}
        said = self.do("ask", {node: call})[node]
        if said["code"] == 200:
            try:
                return answer.model_validate_json(said["body"])
            except ValidationError:
                said["body"] = "the agent's answer is not understood"
        version = self.do("look", {node: {}})[node]["version"]
        other = f"; it has PBServer {version}, this is {__version__}: pbdeploy up" if version != __version__ else ""
        raise ClusterError(f"{named(node)}: {said['body']}{other}")

    def _one(self, act: str, node: Node, arguments: Mapping[str, object]) -> dict[str, Any]:
        request = json.dumps({"do": act, "home": str(node.directory), **arguments})
        reached = self.layout.ssh_of(self.layout.machine_of(node))
        answer = ssh.run(f"{_PROGRAM}\nanswer({request!r})\n", {node.host: (reached, "")})[node.host]
        if isinstance(answer, Unreachable):
            return {"error": str(answer)}
        said: dict[str, Any] = json.loads(answer.text)
        return said


def named(node: Node) -> str:
    return f"{node.name} ({node.host})"
