"""A directed graph with edges of several kinds: its strongly connected parts, short cycles, a topological order.

Nodes are numbers. Pure; nothing here knows transactions.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Flag, auto
from heapq import heapify, heappop, heappush


class Edge(Flag):
    """Why one transaction comes before another. Barriers of time are nodes too, joined by TIME edges."""

    OVERWRITE = auto()  # ww: the next version of what the other wrote
    READ = auto()  # wr: read what the other wrote
    OVERTAKE = auto()  # rw: wrote the next version of what the other read
    TIME = auto()  # began when the other had ended


ALL = Edge.OVERWRITE | Edge.READ | Edge.OVERTAKE | Edge.TIME


class Graph:
    def __init__(self, size: int) -> None:
        self._out: list[dict[int, Edge]] = [{} for _ in range(size)]
        self._labels: dict[tuple[int, int, Edge], str] = {}
        self._added: list[tuple[int, int, Edge]] = []

    def __len__(self) -> int:
        return len(self._out)

    def add(self, start: int, stop: int, kind: Edge, label: str = "") -> None:
        out = self._out[start]
        if kind in out.get(stop, Edge(0)):
            return
        out[stop] = out.get(stop, kind) | kind
        self._added.append((start, stop, kind))
        if label:
            self._labels[start, stop, kind] = label

    def mark(self) -> int:
        """How the graph is now, for `undo`."""
        return len(self._added)

    def undo(self, mark: int) -> None:
        """Takes out all edges that were added since."""
        while len(self._added) > mark:
            start, stop, kind = self._added.pop()
            self._out[start][stop] &= ~kind
            if not self._out[start][stop]:
                del self._out[start][stop]
            self._labels.pop((start, stop, kind), None)

    def edge(self, start: int, stop: int, kinds: Edge) -> tuple[Edge, str]:
        """One of the edges of these kinds, the first as Edge lists them, and its label."""
        kind = next(iter(self._out[start][stop] & kinds))
        return kind, self._labels.get((start, stop, kind), "")

    def after(self, node: int, kinds: Edge = ALL) -> list[int]:
        return [stop for stop, kind in self._out[node].items() if kind & kinds]

    def edges(self, nodes: Iterable[int], kind: Edge) -> Iterator[tuple[int, int]]:
        """The edges of a kind between the nodes."""
        inside = set(nodes)
        return ((start, stop) for start in inside for stop in self.after(start, kind) if stop in inside)

    def path(
        self, start: int, stop: int, kinds: Edge = ALL, allowed: Callable[[int], bool] | None = None
    ) -> list[int] | None:
        """A shortest path of at least one edge, both ends included; None if there is none."""
        before: dict[int, int] = {}
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            for following in self.after(node, kinds):
                if following in before or not (allowed is None or allowed(following)):
                    continue
                before[following] = node
                if following == stop:
                    return _backwards(before, start, stop)
                waiting.append(following)
        return None

    def tangles(self, kinds: Edge = ALL, among: Iterable[int] | None = None) -> list[list[int]]:
        """The strongly connected components of more than one node (Tarjan)."""
        nodes = list(range(len(self)) if among is None else among)
        inside = None if among is None else set(nodes)
        return list(_Tarjan(lambda node: [n for n in self.after(node, kinds) if inside is None or n in inside], nodes))

    def order(self, priority: Callable[[int], int]) -> list[int]:
        """All nodes, each after those with an edge to it, of the possible ones that of least priority first.

        Shorter than the graph when there is a cycle.
        """
        missing = [0] * len(self)
        for out in self._out:
            for stop in out:
                missing[stop] += 1
        ready = [(priority(node), node) for node, count in enumerate(missing) if not count]
        heapify(ready)
        found = []
        while ready:
            _, node = heappop(ready)
            found.append(node)
            for stop in self._out[node]:
                missing[stop] -= 1
                if not missing[stop]:
                    heappush(ready, (priority(stop), stop))
        return found


def _backwards(before: dict[int, int], start: int, stop: int) -> list[int]:
    path = [stop, before[stop]]
    while path[-1] != start:
        path.append(before[path[-1]])
    return path[::-1]


class _Tarjan:
    """Without recursion: paths are as long as histories."""

    def __init__(self, after: Callable[[int], list[int]], nodes: Iterable[int]) -> None:
        self._after = after
        self._nodes = nodes
        self._index: dict[int, int] = {}
        self._low: dict[int, int] = {}
        self._stack: list[int] = []
        self._stacked: set[int] = set()

    def __iter__(self) -> Iterator[list[int]]:
        for node in self._nodes:
            if node not in self._index:
                yield from self._visit(node)

    def _visit(self, root: int) -> Iterator[list[int]]:
        work = [(root, iter(self._enter(root)))]
        while work:
            node, following = work[-1]
            fresh = next((each for each in following if self._is_fresh(node, each)), None)
            if fresh is not None:
                work.append((fresh, iter(self._enter(fresh))))
                continue
            work.pop()
            if work:
                parent = work[-1][0]
                self._low[parent] = min(self._low[parent], self._low[node])
            if self._low[node] == self._index[node]:
                component = self._leave(node)
                if len(component) > 1:
                    yield component

    def _enter(self, node: int) -> list[int]:
        self._index[node] = self._low[node] = len(self._index)
        self._stack.append(node)
        self._stacked.add(node)
        return self._after(node)

    def _is_fresh(self, node: int, following: int) -> bool:
        if following in self._stacked:
            self._low[node] = min(self._low[node], self._index[following])
        return following not in self._index

    def _leave(self, root: int) -> list[int]:
        at = self._stack.index(root) if self._stack[-1] != root else len(self._stack) - 1
        component = self._stack[at:]
        del self._stack[at:]
        self._stacked.difference_update(component)
        return component
