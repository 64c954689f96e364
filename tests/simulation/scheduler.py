"""A world in which nothing happens by itself: tasks, a clock and every random choice are driven by one seed.

A task is a greenlet. It runs until it waits (for the store's answer, or for time to pass); then the scheduler chooses
who goes on. So a seed gives the same run every time, and any two steps of different tasks may come in any order.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch
from zlib import crc32

from greenlet import getcurrent, greenlet

_EPOCH_NS = 1_700_000_000_000_000_000
_NEVER = 1 << 62
_STEP_NS = 20_000  # time that passes between two steps


class Crash(BaseException):
    """The process of a task was killed. No except clause for errors catches it."""


class Task:
    """`owner` is the process it runs in: None for what cannot be killed."""

    def __init__(self, world: "World", name: str, work: Callable[[], None], owner: object) -> None:
        self.name = name
        self.owner = owner
        self.wakes_at = 0
        self.killed = False
        self.waiting: list[Task] = []  #: for its end
        self._greenlet = greenlet(self._run, parent=world.hub)
        self._work = work

    def _run(self) -> None:
        with suppress(Crash):
            self._work()

    @property
    def over(self) -> bool:
        return self._greenlet.dead

    def go_on(self) -> None:
        self._greenlet.switch()


class World:
    """The scheduler of one run. `fingerprint` grows with every choice: equal for equal runs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.hub = getcurrent()
        self.now_ns = _EPOCH_NS
        self.tasks: list[Task] = []
        self.steps = 0
        self.fingerprint = 0
        self._current: Task | None = None

    def start(self, name: str, work: Callable[[], None], owner: object = None) -> Task:
        task = Task(self, name, work, owner)
        self.tasks.append(task)
        return task

    def kill(self, owner: object) -> None:
        """Ends all tasks of a process at the step they are waiting in."""
        for task in self.tasks:
            if task.owner is owner:
                task.killed = True
                task.wakes_at = 0

    def pause(self, owner: object, seconds: float) -> None:
        """Stops the tasks of a process for a while, wherever they are."""
        until = self.now_ns + int(seconds * 1e9)
        for task in self.tasks:
            if task.owner is owner and not task.killed:
                task.wakes_at = max(task.wakes_at, until)

    def yield_(self) -> None:
        """Lets others go first."""
        self.sleep(0.0)

    def sleep(self, seconds: float) -> None:
        """Called by a task: others run until so much time has passed."""
        task = self._current
        if task is None:
            self.now_ns += int(seconds * 1e9)
            return
        self._park(task, self.now_ns + int(seconds * 1e9))

    def join(self, other: Task) -> None:
        """Called by a task: waits for the end of another."""
        if not other.over and self._current is not None:
            other.waiting.append(self._current)
            self._park(self._current, _NEVER)

    def _park(self, task: Task, until: int) -> None:
        if not task.killed:
            task.wakes_at = until
            self.hub.switch()
        if task.killed:
            raise Crash

    def run(self, most_steps: int) -> None:
        """Until every task is over. Raises AssertionError when that takes more steps than it may."""
        while self.tasks:
            awake = [task for task in self.tasks if task.wakes_at <= self.now_ns]
            if not awake:
                self.now_ns = min(task.wakes_at for task in self.tasks)
                continue
            task = self.random.choice(awake)
            self.now_ns += _STEP_NS
            self.steps += 1
            self.fingerprint = crc32(task.name.encode(), self.fingerprint)
            assert self.steps < most_steps, "no end: " + ", ".join(sorted(task.name for task in self.tasks))
            self._current = task
            task.go_on()
            self._current = None
            if task.over:
                self.tasks.remove(task)
                for each in task.waiting:
                    each.wakes_at = self.now_ns

    # what modules see in place of the standard library's time, random and os

    def clock(self) -> SimpleNamespace:
        return SimpleNamespace(
            monotonic=lambda: self.now_ns / 1e9,
            monotonic_ns=lambda: self.now_ns,
            time=lambda: self.now_ns / 1e9,
            time_ns=lambda: self.now_ns,
            sleep=self.sleep,
        )

    def dice(self) -> SimpleNamespace:
        return SimpleNamespace(uniform=self.random.uniform, urandom=self.random.randbytes, Random=random.Random)


@contextmanager
def governed(world: World, modules: list[ModuleType]) -> Iterator[None]:
    """Inside, the modules live in the world's time and take their chances from its seed."""
    patches: list[Any] = []
    for module in modules:
        for name, stand_in in (("time", world.clock()), ("random", world.dice()), ("os", world.dice())):
            if isinstance(getattr(module, name, None), ModuleType):
                patches.append(patch.object(module, name, stand_in))
        if hasattr(module, "_random"):
            patches.append(patch.object(module, "_random", world.random))
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
