"""The head's calls, beside those of every agent: what is wanted, and how it stands."""

import asyncio
import time
from collections.abc import Collection, Sequence, Set
from contextlib import suppress

import structlog
from pydantic import SecretStr

from adapters.hosts import Host
from controller.agent import files
from controller.agent.api import Call
from controller.agent.home import AgentSettings, Home
from controller.agent.messages import Done, NodeStatus, Since, Status, Trouble, Want
from controller.agent.parts import VERSION, Parts
from controller.agent.services import RUNNING
from controller.head.calls import Agents
from controller.head.cycle import Head
from controller.head.steps import ALL_DOWN, entry_points
from controller.head.view import MISSING_SECONDS, Action, Kind, Observed

_log = structlog.get_logger()


def head_calls(home: Home, settings: AgentSettings, secret: SecretStr) -> dict[str, Call]:
    """Starts the head, which goes on with what was wanted last."""
    calls = HeadCalls(home, Head(home, settings, Agents(home, secret)))
    return {"may": (Want, calls.may), "want": (Want, calls.want), "status": (Since, calls.status)}


class HeadCalls:
    """Answers for the head."""

    def __init__(self, home: Home, head: Head) -> None:
        self._home = home
        self._head = head
        if home.wanted.exists():
            head.want(Want.model_validate_json(home.wanted.read_text(encoding="utf-8")))
        self._loop = asyncio.create_task(head.run())
        self._loop.add_done_callback(_end_with_it)

    async def may(self, want: Want) -> Done:
        """Whether the cluster may be up with that layout."""
        refusal = self._head.founding.refusal(Parts(want.layout))
        return Done(ok=not refusal, text=refusal)

    async def want(self, want: Want) -> Status:
        """Is kept for the time after a reboot, too."""
        files.write(self._home.wanted, want.model_dump_json(), 0o600)
        self._head.want(want)
        return await self.status(Since(after=self._last))

    async def status(self, since: Since) -> Status:
        """At once if there are later sentences, otherwise when the next is said or the time is over."""
        head = self._head
        with suppress(TimeoutError):
            async with head.spoken:
                await asyncio.wait_for(head.spoken.wait_for(lambda: self._last > since.after), since.wait_seconds)
        sentences = [each for each in head.said if each.number > since.after]
        if head.parts is None:
            return Status(
                version=VERSION,
                layout=None,
                up=False,
                whole=False,
                down=True,
                sentences=sentences,
                nodes=[],
                troubles=[],
                awaited=[],
                entry_points=[],
            )
        parts, observed = head.parts, head.observed(head.parts)
        entries = [parts.nodes[number].host for number in entry_points(head.wanted(parts), observed)]
        return Status(
            version=VERSION,
            layout=parts.layout,
            up=head.up,
            whole=head.up and head.steps.whole,
            down=not head.up and head.steps.sentence == ALL_DOWN,
            sentences=sentences,
            nodes=[self._node(parts, number) for number in parts.nodes],
            troubles=_troubles(parts, observed, head.memory.fatal, head.joining(parts)),
            awaited=_awaited(parts, observed, head.steps.actions),
            entry_points=[str(Host(host, parts.layout.ports.pbserver)) for host in entries],
        )

    @property
    def _last(self) -> int:
        return self._head.said[-1].number if self._head.said else 0

    def _node(self, parts: Parts, number: int) -> NodeStatus:
        node, memory = parts.nodes[number], self._head.memory
        machine = parts.layout.machine_of(node)
        return NodeStatus(
            number=number,
            name=node.name,
            address=node.host,
            joins=number in self._head.joining(parts),
            roles=[*map(str, machine.roles), *["leaving"] * machine.leaving],
            silent_seconds=round(time.monotonic() - memory.heard[number], 1),
            facts=memory.facts.get(number),
        )


def _end_with_it(loop: asyncio.Task[None]) -> None:
    """A head that has failed takes the agent with it, which supervisord starts again."""
    if not loop.cancelled():
        _log.error("the head has ended", exc_info=loop.exception())
        asyncio.get_running_loop().stop()


def _runs(observed: Observed, number: int, service: str) -> bool:
    return observed.nodes[number].services.get(service) in RUNNING


def _troubles(parts: Parts, observed: Observed, fatal: Set[tuple[int, str]], joining: Collection[int]) -> list[Trouble]:
    """What the operator should know; a check that may still pass is none, nor is one of a node that gets its data."""
    found = [
        (number, "heartbeat", f"silent for {seen.silent_seconds:.0f} s")
        for number, seen in observed.nodes.items()
        if not seen.answers and seen.silent_seconds >= MISSING_SECONDS
    ]
    for (kind, number, service), text in observed.failed.items():
        if kind is Kind.CHECK and (number, service) in observed.late and number not in joining:
            found.append((number, service, f"not ready in time: {text}"))
        elif kind is Kind.CHECK and (number, service) in fatal:
            found.append((number, service, f"ends again and again: {text}"))
        elif kind is Kind.START and (number, service) not in fatal and _runs(observed, number, service):
            continue  # supervisord goes on trying
        elif kind is not Kind.CHECK:
            found.append((number or 1, f"{kind} {service}".strip(), text))
    return [_trouble(parts, *each) for each in found]


def _awaited(parts: Parts, observed: Observed, actions: Sequence[Action]) -> list[Trouble]:
    return [
        _trouble(
            parts,
            each.node or 1,
            each.service if each.kind is Kind.CHECK else f"{each.kind} {each.service}".strip(),
            observed.failed.get((each.kind, each.node, each.service), ""),
        )
        for each in actions
    ]


def _trouble(parts: Parts, number: int, what: str, text: str) -> Trouble:
    node = parts.nodes[number]
    return Trouble(node=node.name, address=node.host, what=what, text=text)
