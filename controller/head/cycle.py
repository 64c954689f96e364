"""The head's loop: hear every node, decide, act; what it remembers between two cycles."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from controller.agent import tasks
from controller.agent.home import AgentSettings, Home
from controller.agent.messages import Ask, Done, Message, NodeFacts, Sentence, Start, Stop, Task, Want
from controller.agent.parts import READY, VERSION, Parts
from controller.agent.services import RUNNING
from controller.gateways import NAME as GATEWAY
from controller.head.calls import Agents, Unanswered
from controller.head.founding import Founding
from controller.head.steps import next_steps
from controller.head.view import Action, Kind, Observed, Seen, Steps, Wanted
from controller.recipe import Node, NotReady

_log = structlog.get_logger()

HEARTBEAT_SECONDS = 10.0
_BUSY_HEARTBEAT_SECONDS = 3.0
_FACTS_SECONDS = 8.0
_AGAIN_SECONDS = 1.0  # after a check that has not passed
_FAILED_SECONDS = 10.0  # after anything else that did not work
_CALL_SECONDS = 120.0
_MOST_SENTENCES = 500
_MOST_STARTS = 4

_Answer = TypeVar("_Answer", bound=Message)
#: What a node's processes are for a stage: its check counts as long as they are the same.
Processes = tuple[tuple[str, int], ...]


@dataclass
class Memory:
    """What is known of one layout's cluster. Everything in it can be found out again."""

    heard: dict[int, float]  #: monotonic time of the last answer; at first, of our own start
    facts: dict[int, NodeFacts] = field(default_factory=dict)
    answers: set[int] = field(default_factory=set)
    passed: dict[tuple[int, str], Processes] = field(default_factory=dict)
    since: dict[tuple[int, str], float] = field(default_factory=dict)  #: monotonic time of the first check
    failed: dict[tuple[Kind, int, str], str] = field(default_factory=dict)
    pids: dict[tuple[int, str], set[int]] = field(default_factory=dict)  #: those a service has had without serving
    fatal: set[tuple[int, str]] = field(default_factory=set)  #: services that end again and again
    primary: int | None = None
    begun: bool = False
    on_disk: dict[int, str] = field(default_factory=dict)
    admitted: bool = False

    def of(self, before: Parts, after: Parts) -> "Memory":
        """What of it is true of another layout: the nodes that are in both."""
        kept = {number for number, node in after.nodes.items() if before.nodes.get(number) == node}
        now = time.monotonic()
        return Memory(
            {number: self.heard[number] if number in kept else now for number in after.nodes},
            {number: each for number, each in self.facts.items() if number in kept},
            self.answers & kept,
            {pair: each for pair, each in self.passed.items() if pair[0] in kept},
            primary=self.primary if self.primary in kept else None,
            begun=self.begun,
            on_disk=self.on_disk,
        )


class Head:
    """Of one cluster. `want` and the loop run on the same event loop."""

    def __init__(self, home: Home, settings: AgentSettings, agents: Agents) -> None:
        self.founding = Founding(home)
        self._port = settings.port
        self._agents = agents
        self._wake = asyncio.Event()
        self._busy: dict[Action, asyncio.Task[None]] = {}
        self._hearts: list[asyncio.Task[None]] = []
        self.said: deque[Sentence] = deque(maxlen=_MOST_SENTENCES)
        self.spoken = asyncio.Condition()
        self.parts: Parts | None = None
        self.up = False
        self.steps = Steps("nothing is wanted yet")
        self.memory = Memory({})

    def joining(self, parts: Parts) -> set[int]:
        """The nodes that have no part of the data yet, while others have; getting it takes as long as there is data."""
        return {*parts.data_nodes} - self.founding.joined if self.founding.done else set()

    def _note_members(self, parts: Parts) -> None:
        """Before anything else is done that may make a difference."""
        joined = self.founding.joined
        services = {stage.service for stage in parts.recipe.stages(parts.cluster(running=parts.data_nodes))}
        passed = self.observed(parts).passed
        now = {
            number
            for number in parts.data_nodes
            if number in joined
            or all((number, each) in passed for each in services & {*parts.services(number, parts.cluster())})
        }
        if now != joined and (self.founding.done or self.steps.whole):
            self.founding.note(now, parts)

    def want(self, want: Want) -> None:
        """From now on."""
        if self.parts is None or self.parts.layout != want.layout:
            self._forget()
            before, self.parts = self.parts, Parts(want.layout)
            now = time.monotonic()
            self.memory = self.memory.of(before, self.parts) if before else Memory(dict.fromkeys(self.parts.nodes, now))
            self._hearts = [asyncio.create_task(self._heart(node)) for node in self.parts.nodes.values()]
        self.memory.failed.clear()
        self.memory.fatal.clear()
        self.memory.pids.clear()
        self.memory.since.clear()
        self.up = want.up
        self.steps = Steps("looking")
        self._wake.set()

    def _forget(self) -> None:
        for task in (*self._hearts, *self._busy.values()):
            task.cancel()
        self._busy.clear()

    async def run(self) -> None:
        """Does not end."""
        while True:
            self._wake.clear()
            if self.parts is not None:
                await self._cycle(self.parts)
            try:
                await asyncio.wait_for(self._wake.wait(), HEARTBEAT_SECONDS)
            except TimeoutError:
                continue

    async def _cycle(self, parts: Parts) -> None:
        self._remember(parts)
        self.steps = next_steps(self.wanted(parts), self.observed(parts))
        self._note_members(parts)
        await self._say(self.steps.sentence)
        if parts is not self.parts:
            return  # something else is wanted since
        for action in self.steps.actions:
            if action not in self._busy:
                self._busy[action] = asyncio.create_task(self._do(action, parts))

    def wanted(self, parts: Parts) -> Wanted:
        return Wanted(parts, self.up, VERSION, self.founding.done)

    def observed(self, parts: Parts) -> Observed:
        """The view of this cycle."""
        memory, now, left = self.memory, time.monotonic(), self._left(parts)
        seconds = {
            stage.service: stage.boot_timeout_seconds for stage in parts.stages(parts.cluster(running=parts.data_nodes))
        }
        return Observed(
            {number: self._seen(parts, number, left) for number in parts.nodes},
            frozenset(pair for pair, were in memory.passed.items() if were == self._processes(*pair)),
            frozenset(pair for pair, begun in memory.since.items() if now - begun > seconds.get(pair[1], 0)),
            dict(memory.failed),
            memory.primary,
            memory.admitted,
        )

    def _seen(self, parts: Parts, number: int, left: Collection[int]) -> Seen:
        facts, answers = self.memory.facts.get(number), number in self.memory.answers
        silent = time.monotonic() - self.memory.heard[number]
        if facts is None:
            return Seen(answers, silent)
        return Seen(
            answers,
            silent,
            facts.version,
            facts.prepared == parts.digest,
            facts.first_booted,
            {name: each.state for name, each in facts.services.items()},
            facts.serves,
            frozenset(name for name, each in facts.services.items() if each.stale),
            number in left,
            facts.leaving,
        )

    def _processes(self, number: int, stage: str) -> Processes:
        facts = self.memory.facts.get(number)
        services = facts.services if facts else {}
        names = [name for name in services if name == stage or (stage == READY and name != GATEWAY)]
        return tuple((name, services[name].pid) for name in sorted(names))

    def _remember(self, parts: Parts) -> None:
        """Drops what is over: a boot that has begun and ended, failures of what runs by now."""
        memory = self.memory
        running = [
            number
            for number, facts in memory.facts.items()
            if any(each.state in RUNNING for name, each in facts.services.items() if name != GATEWAY)
        ]
        members = [number for number in parts.data_nodes if number not in self._left(parts)]
        done = all(memory.passed.get((number, READY)) == self._processes(number, READY) for number in members)
        if memory.begun and (done or not running):
            memory.primary, memory.begun = None, False
        for kind, number, service in [*memory.failed]:
            facts = memory.facts.get(number)
            there = facts.services.get(service) if facts else None
            if kind is Kind.START and there and there.state == "RUNNING":
                del memory.failed[kind, number, service]

    async def _say(self, text: str) -> None:
        """Once, however often it is true."""
        if self.said and self.said[-1].text == text:
            return
        _log.info("cycle", says=text)
        self.said.append(Sentence(number=self.said[-1].number + 1 if self.said else 1, time=time.time(), text=text))
        async with self.spoken:
            self.spoken.notify_all()

    # -- hearing

    async def _heart(self, node: Node) -> None:
        while True:
            await self._hear(node)
            await asyncio.sleep(HEARTBEAT_SECONDS if self.steps.whole else _BUSY_HEARTBEAT_SECONDS)

    async def _hear(self, node: Node) -> None:
        before = (node.number in self.memory.answers, self.memory.facts.get(node.number))
        try:
            facts = await self._call(node, "facts", Ask(), NodeFacts, _FACTS_SECONDS)
        except Unanswered:
            self.memory.answers.discard(node.number)
        else:
            self.memory.answers.add(node.number)
            self.memory.facts[node.number] = facts
            self.memory.heard[node.number] = time.monotonic()
            self._count(node.number, facts)
        after = (node.number in self.memory.answers, self.memory.facts.get(node.number))
        if _changed(before, after):
            self._wake.set()

    def _count(self, number: int, facts: NodeFacts) -> None:
        """Which services end as often as they are started: supervisord sees only those that do so within a second."""
        for name, each in facts.services.items():
            pair = (number, name)
            had = self.memory.pids.setdefault(pair, set())
            if self.memory.passed.get(pair) != self._processes(*pair):
                had |= {each.pid} - {0}
            if each.state == "FATAL" or len(had) > _MOST_STARTS:
                self.memory.fatal.add(pair)

    # -- acting

    async def _do(self, action: Action, parts: Parts) -> None:
        key = (action.kind, action.node, action.service)
        try:
            done = await _ACTS[action.kind](self, action, parts)
        except Unanswered as error:
            done = Done(ok=False, text=str(error))
        try:
            if done.ok:
                self.memory.failed.pop(key, None)
            else:
                self.memory.failed[key] = done.text
                self._wake.set()
            if action.node:
                await self._hear(parts.nodes[action.node])
            if not done.ok:
                await asyncio.sleep(_AGAIN_SECONDS if self._expected(action) else _FAILED_SECONDS)
        finally:
            if self._busy.get(action) is asyncio.current_task():
                del self._busy[action]
            self._wake.set()

    def _expected(self, action: Action) -> bool:
        """Whether it is no failure yet: a check may fail for a while."""
        assert self.parts is not None
        pair = (action.node, action.service)
        return action.kind is Kind.CHECK and pair not in self.observed(self.parts).late

    async def _work(self, action: Action, parts: Parts, task: str, argument: str = "") -> Done:
        asked = Task(task=task, layout=parts.layout, number=action.node, argument=argument)
        return await self._call(parts.nodes[action.node], "work", asked, Done, tasks.SECONDS[task] + _CALL_SECONDS)

    async def _prepare(self, action: Action, parts: Parts) -> Done:
        return await self._work(action, parts, tasks.PREPARE)

    async def _boot_first(self, action: Action, parts: Parts) -> Done:
        return await self._work(action, parts, tasks.FIRST_BOOT)

    async def _choose(self, action: Action, parts: Parts) -> Done:
        """Who has never joined, or has left, has no say."""
        del action
        without = self.joining(parts) | self._left(parts)
        members = [number for number in parts.data_nodes if number not in without]
        numbers = [number for number in members if number in self.memory.answers]
        asked = [Action(Kind.CHOOSE, number) for number in numbers]
        found = await asyncio.gather(*(self._work(each, parts, tasks.ON_DISK) for each in asked))
        texts = {number: each.text for number, each in zip(numbers, found, strict=True)}
        for number, each in zip(numbers, found, strict=True):
            if not each.ok:
                return Done(ok=False, text=f"{parts.nodes[number].name}: {each.text}")
        try:
            by_node = {parts.nodes[number]: text for number, text in texts.items()}
            chosen = parts.recipe.primary_of(by_node, parts.cluster(without=without))
        except NotReady as error:
            return Done(ok=False, text=str(error))
        self.memory.primary, self.memory.begun, self.memory.on_disk = chosen.number, False, texts
        await self._say(f"{chosen.name} ({chosen.host}) begins")
        return Done(ok=True)

    async def _start(self, action: Action, parts: Parts) -> Done:
        self.memory.since.pop((action.node, action.service), None)
        asked = Start(
            layout=parts.layout,
            service=action.service,
            begins=action.begins,
            on_disk=self.memory.on_disk.get(action.node, ""),
        )
        done = await self._call(parts.nodes[action.node], "start", asked, Done, _CALL_SECONDS)
        self.memory.begun = self.memory.begun or (action.begins and done.ok)
        return done

    async def _check(self, action: Action, parts: Parts) -> Done:
        pair, processes = (action.node, action.service), self._processes(action.node, action.service)
        self.memory.since.setdefault(pair, time.monotonic())
        done = await self._work(action, parts, tasks.CHECK, action.service)
        if done.ok:
            self.memory.passed[pair] = processes
            self.memory.since.pop(pair, None)
            self.memory.fatal.discard(pair)
            self.memory.pids.pop(pair, None)
        return done

    async def _stop(self, action: Action, parts: Parts) -> Done:
        return await self._call(parts.nodes[action.node], "stop", Stop(service=action.service), Done, _CALL_SECONDS)

    async def _admit(self, action: Action, parts: Parts) -> Done:
        done = await self._work(action, parts, tasks.ADMIT)
        self.memory.admitted = done.ok
        return done

    async def _leave(self, action: Action, parts: Parts) -> Done:
        return await self._work(action, parts, tasks.LEAVE)

    def _left(self, parts: Parts) -> set[int]:
        """Who is leaving and has no part of the data any more, or never had one."""
        told = {number for number, facts in self.memory.facts.items() if facts.left}
        return {*parts.leaving} & (told | self.joining(parts))

    async def _call(self, node: Node, name: str, asked: Message, answer: type[_Answer], seconds: float) -> _Answer:
        return await self._agents.call(node.host, self._port, name, asked, answer, seconds)


_ACTS: Mapping[Kind, Callable[[Head, Action, Parts], Awaitable[Done]]] = {
    Kind.PREPARE: Head._prepare,
    Kind.FIRST_BOOT: Head._boot_first,
    Kind.CHOOSE: Head._choose,
    Kind.START: Head._start,
    Kind.CHECK: Head._check,
    Kind.STOP: Head._stop,
    Kind.ADMIT: Head._admit,
    Kind.LEAVE: Head._leave,
}


def _changed(before: tuple[bool, NodeFacts | None], after: tuple[bool, NodeFacts | None]) -> bool:
    """Whether a heartbeat has told something to act on; memory and load are no such thing."""

    def telling(found: tuple[bool, NodeFacts | None]) -> object:
        answers, facts = found
        if facts is None:
            return answers
        processes = {name: (each.state, each.pid, each.stale) for name, each in facts.services.items()}
        said = facts.first_booted, facts.serves, facts.left, facts.leaving
        return answers, facts.version, facts.prepared, said, processes

    return telling(before) != telling(after)
