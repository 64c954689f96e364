"""Goes through a whole store in ordered pages, each in a short snapshot of its own, and tells what is wrong.

From the rows of table `kinds` one reaches the namespaces and the scopes of index rows; from kindless rows and index
rows the entities, and with an entity its whole group. Both directions are compared. The contract's scans never leave
a scope and nothing lists the scopes there are, so this cannot be seen:

- projects that the caller does not name (known_projects tells those that have, or had, composite indexes);
- rows in a namespace of which no kind is listed, or of a kind that is neither listed nor that of an entity found;
- entities of a group to which no kindless row and no index row of a listed kind leads.

Needs atomicity BATCH and snapshots: where commits are applied row by row, an unfinished one would look like a problem.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from adapters.contract import Address, KeyRange, OrderedStore, Row, Table
from pbserver.datastore import catalog, ids, keys, tables
from pbserver.datastore.encoding import read_text
from pbserver.datastore.keys import Key
from pbserver.verification.checks import View, key_of_path
from pbserver.verification.problem import Fault, Problem

PAGE_GROUPS = 50  #: with at most as many entities each, looked at in one snapshot
PAGE_ROWS = 500
_SECONDS = 60.0  # for each page
_MOST_REMEMBERED = 100_000


@dataclass
class Tally:
    """How much was looked at so far. `told` is called after each page."""

    entities: int = 0
    index_rows: int = 0
    told: Callable[["Tally"], None] = field(default=lambda _: None, repr=False)


def known_projects(store: OrderedStore) -> list[bytes]:
    """The projects the store itself tells of: those that have, or had, composite indexes."""
    return catalog.projects(store, deadline=_deadline())


def problems(store: OrderedStore, projects: Iterable[bytes], tally: Tally | None = None) -> Iterator[Problem]:
    """What is wrong in the projects, found without writing; each problem was seen in two snapshots.

    Never holds a snapshot while it yields, so its caller may write. May run while servers write. A problem may come
    twice where there are more than 100,000.
    """
    tally = tally or Tally()
    told: set[Problem] = set()
    for project in projects:
        for problem in _Walk(store, project, tally).problems():
            if problem not in told:
                if len(told) < _MOST_REMEMBERED:
                    told.add(problem)
                yield problem


def still(store: OrderedStore, problem: Problem) -> list[Problem]:
    """What is wrong now, in a fresh snapshot, with the entity or row a problem is about."""
    table, scope, _, row = problem.address
    if problem.fault.is_note:
        return [problem]
    part = problem.key.partition if problem.key is not None else _partition_of(problem.address)
    with view(store, keys.project_of(part)) as seen:
        if problem.fault is Fault.UNREADABLE_CATALOG:
            return [*filter(None, [seen.catalog_problem()])]
        if problem.fault is Fault.PHANTOM_ROW:
            value = seen.reader.read([problem.address], deadline=seen.deadline)[0]
            if value is None:
                return []
            if table is Table.KINDLESS:
                return [*seen.kindless_problems(scope, [(row, value)])]
            found = seen.index_row_problems(part, scope[len(part) :], [(row, value)])
            return [each for each in found if each.address == problem.address]
        stored = seen.stored(problem.key) if problem.key is not None else None
        return [*seen.entity_problems(problem.key, stored)] if problem.key is not None and stored is not None else []


@contextmanager
def view(store: OrderedStore, project: bytes) -> Iterator[View]:
    with store.snapshot() as reader:
        yield View(reader, project, deadline=_deadline())


class _Walk:
    """Through one project."""

    def __init__(self, store: OrderedStore, project: bytes, tally: Tally) -> None:
        self._store = store
        self._project = project
        self._tally = tally
        self._highest = {ids.SEQUENTIAL: (0, b"", 0), ids.SCATTERED: (0, b"", 0)}
        self._big: list[bytes] = []

    def problems(self) -> Iterator[Problem]:
        with view(self._store, self._project) as seen:
            wrong = seen.catalog_problem()
        if wrong is not None:
            yield from still(self._store, wrong)
        app, database, _ = keys.partition_names(self._project)
        yield from self._entities(self._project)
        done = self._project
        for row, _ in self._pages(Table.KINDS, self._project):
            namespace, end = read_text(row, 0)
            partition = keys.partition(app, database, namespace)
            if partition != done:
                yield from self._entities(partition)
                done = partition
            yield from self._index_rows(partition, row[end:])
        yield from self._counters()

    def _pages(self, table: Table, scope: bytes) -> Iterator[Row]:
        """All rows of a scope; each page as it stood when it was read."""
        start = b""
        while True:
            rows = self._store.scan(table, scope, KeyRange(start), limit=PAGE_ROWS, deadline=_deadline())
            yield from rows
            if len(rows) < PAGE_ROWS:
                return
            start = rows[-1][0] + b"\x00"

    def _entities(self, partition: bytes) -> Iterator[Problem]:
        """The kindless rows of a partition, and the groups they lead to."""
        start, last_root = b"", b""
        while True:
            with view(self._store, self._project) as seen:
                rows = seen.reader.scan(
                    Table.KINDLESS, partition, KeyRange(start), limit=PAGE_GROUPS, deadline=seen.deadline
                )
                found = [*seen.kindless_problems(partition, rows)]
                paths = [key.path[: key.root] for row, _ in rows if (key := key_of_path(partition, row)) is not None]
                roots = [root for root in dict.fromkeys(paths) if root != last_root]
                for root in roots:
                    found += self._group(seen, partition, root)
            yield from self._confirmed(found)
            while self._big:
                yield from self._big_group(partition, self._big.pop())
            self._tally.told(self._tally)
            if len(rows) < PAGE_GROUPS:
                return
            start = rows[-1][0] + b"\x00"
            last_root = roots[-1] if roots else last_root

    def _group(self, seen: View, partition: bytes, root: bytes) -> list[Problem]:
        """What is wrong in a group; one of more than a page is left for later."""
        rows = seen.reader.scan(
            Table.GROUPS, partition + root, KeyRange(), limit=PAGE_GROUPS + 1, deadline=seen.deadline
        )
        if len(rows) > PAGE_GROUPS:
            self._big.append(root)
            return []
        return self._group_page(seen, partition, root, rows)

    def _big_group(self, partition: bytes, root: bytes) -> Iterator[Problem]:
        start = b""
        while True:
            with view(self._store, self._project) as seen:
                rows = seen.reader.scan(
                    Table.GROUPS, partition + root, KeyRange(start), limit=PAGE_GROUPS, deadline=seen.deadline
                )
                found = self._group_page(seen, partition, root, rows)
            yield from self._confirmed(found)
            self._tally.told(self._tally)
            if len(rows) < PAGE_GROUPS:
                return
            start = rows[-1][0] + b"\x00"

    def _group_page(self, seen: View, partition: bytes, root: bytes, rows: list[Row]) -> list[Problem]:
        found: list[Problem] = []
        head = tables.head_address(b"").key
        for row, stored in rows:
            if row == head:
                continue
            key = key_of_path(partition, root + row[1:])
            if key is None or tables.entity_address(key).key != row:
                found.append(Problem(Fault.MISPLACED_ENTITY, Address(Table.GROUPS, partition + root, b"", row), None))
                continue
            self._tally.entities += 1
            self._note_id(key)
            found += seen.entity_problems(key, stored)
        return found

    def _index_rows(self, partition: bytes, kind: bytes) -> Iterator[Problem]:
        start = b""
        while True:
            with view(self._store, self._project) as seen:
                rows = seen.reader.scan(
                    Table.INDEXES, partition + kind, KeyRange(start), limit=PAGE_ROWS, deadline=seen.deadline
                )
                found = [*seen.index_row_problems(partition, kind, rows)]
            self._tally.index_rows += len(rows)
            yield from self._confirmed(found)
            self._tally.told(self._tally)
            if len(rows) < PAGE_ROWS:
                return
            start = rows[-1][0] + b"\x00"

    def _confirmed(self, found: list[Problem]) -> Iterator[Problem]:
        """Those that are there in a fresh snapshot too."""
        for problem in found:
            if (problem.key is None and problem.fault is Fault.MISPLACED_ENTITY) or problem in still(
                self._store, problem
            ):
                yield problem

    def _note_id(self, key: Key) -> None:
        *_, (_, identifier) = keys.decode_path(key.path)
        if not isinstance(identifier, int):
            return
        counter = ids.unscatter(identifier)
        policy = ids.SEQUENTIAL if counter is None else ids.SCATTERED
        value = identifier if counter is None else counter
        if value <= ids.MAX_SEQUENTIAL_ID and value > self._highest[policy][0]:
            self._highest[policy] = (value, key.partition + key.path, len(key.partition))

    def _counters(self) -> Iterator[Problem]:
        """The counters as they stand after all entities were seen: an id from a counter was taken before it was put."""
        for policy, (highest, place, cut) in self._highest.items():
            address = tables.counter_address(self._project, policy)
            counter = self._store.read([address], deadline=_deadline())[0]
            following = int.from_bytes(counter, "big") if counter is not None else 1
            if highest >= following:
                detail = f"the {policy.decode()} counter stands at {following}, this id is its number {highest}"
                yield Problem(Fault.LOW_COUNTER, address, key_of_path(place[:cut], place[cut:]), detail)


def _partition_of(address: Address) -> bytes:
    """The partition that a row's scope begins with, or a catalog row's project."""
    where = address.scope
    if address.table is Table.META:
        where = address.key[read_text(address.key, 0)[1] :]
    end = 0
    for _ in range(3):
        end = read_text(where, end)[1]
    return where[:end]


def _deadline() -> float:
    return time.monotonic() + _SECONDS
