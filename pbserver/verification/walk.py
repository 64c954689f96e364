"""Goes through a whole store in ordered pages, each a short look of its own, and tells what is wrong.

From the rows of table `kinds` one reaches the namespaces and the scopes of index rows; from kindless rows and index
rows the entities, and with an entity its whole group. Both directions are compared. The contract's scans never leave
a scope and nothing lists the scopes there are, so this cannot be seen:

- projects that the caller does not name (known_projects tells all those the store tells of);
- rows in a namespace of which no kind is listed, or of a kind that is neither listed nor that of an entity found;
- entities of a group to which no kindless row and no index row of a listed kind leads.

What a page shows is only a candidate: it is a problem when it is there in one state of its entity group too. Where
commits are applied row by row, unfinished ones are no problem either: they are finished as they are met, first of all
those that servers have noted.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import filterfalse, islice
from typing import NamedTuple

from adapters.contract import Address, KeyRange, OrderedStore, Row, Table
from pbserver.datastore import heads, ids, keys, projects, tables
from pbserver.datastore.encoding import read_text
from pbserver.datastore.errors import Internal, Timeout
from pbserver.datastore.keys import Key
from pbserver.verification.checks import PAGE_ENTITIES, View, key_of_path, unreadable_head
from pbserver.verification.problem import Fault, Problem
from pbserver.verification.states import States, states_of

PAGE_GROUPS = 50  #: with at most as many entities each, looked at in one snapshot
PAGE_ROWS = 500
_PAGE_NOTES = 100
_SECONDS = 60.0  # for each page
_MOST_REMEMBERED = 100_000


@dataclass
class Tally:
    """How much was looked at so far. `told` is called after each page.

    `unfinished`: entity groups whose last commit a server had noted and not finished. `restless`: groups in which
    something looked wrong, but that were changed all the time, so that nobody knows.
    """

    entities: int = 0
    index_rows: int = 0
    unfinished: int = 0
    restless: set[bytes] = field(default_factory=set)
    told: Callable[["Tally"], None] = field(default=lambda _: None, repr=False)


def known_projects(store: OrderedStore) -> list[bytes]:
    """The projects the store itself tells of: those that have, or had, entities or composite indexes."""
    return projects.projects(store)


def problems(store: OrderedStore, wanted: Iterable[bytes], tally: Tally | None = None) -> Iterator[Problem]:
    """What is wrong in the projects, each problem seen in one state of its entity group.

    Writes nothing but what unfinished commits have left to be written. Holds nothing while it yields, so its caller
    may write. May run while servers write. A problem may come twice where there are more than 100,000.
    """
    tally = tally or Tally()
    states = states_of(store)
    told: set[Problem] = set()
    for problem in _all_problems(states, [*wanted], tally):
        if problem not in told:
            if len(told) < _MOST_REMEMBERED:
                told.add(problem)
            yield problem


def _all_problems(states: States, wanted: Collection[bytes], tally: Tally) -> Iterator[Problem]:
    if not states.steady:
        yield from _finish_noted(states, wanted, tally)
    for project in wanted:
        yield from _Walk(states, project, tally).problems()


def still(states: States, problem: Problem) -> list[Problem]:
    """What is wrong now with the entity or row a problem is about, in one state of its entity group.

    Raises Timeout when the group is changed all the time.
    """
    if problem.fault.is_note:
        return [problem]
    key = problem.key
    part = key.partition if key is not None else _partition_of(problem.address)
    try:
        return states.look(
            keys.project_of(part), lambda seen: about(seen, problem), group=None if key is None else key.group
        )
    except Internal:  # the head of the group, or of another in the same commit
        return [unreadable_head(key)] if key is not None else []


def about(seen: View, problem: Problem) -> list[Problem]:
    """What is wrong with the entity or row a problem is about, as far as a look shows it."""
    key = problem.key
    if problem.fault is Fault.UNREADABLE_CATALOG:
        return [*filter(None, [seen.catalog_problem()])]
    if problem.fault is Fault.UNLISTED_PROJECT:
        return [problem] if seen.is_absent(problem.address) else []
    if problem.fault is Fault.UNREADABLE_HEAD and key is not None:
        head = seen.head(key.group)
        return [problem] if head is not None and not seen.is_head(head) else []
    if problem.fault is Fault.PHANTOM_ROW:
        return _about_row(seen, problem)
    if problem.fault is Fault.MISPLACED_ENTITY and key is None:
        return [] if seen.is_absent(problem.address) else [problem]
    stored = seen.stored(key) if key is not None else None
    return [*seen.entity_problems([(key, stored)])] if key is not None and stored is not None else []


def _about_row(seen: View, problem: Problem) -> list[Problem]:
    table, scope, _, row = problem.address
    value = seen.reader.read([problem.address], deadline=seen.deadline)[0]
    if value is None:
        return []
    if table is Table.KINDLESS:
        return [*seen.kindless_problems(scope, [(row, value)])]
    part = _partition_of(problem.address)
    found = seen.index_row_problems(part, scope[len(part) :], [(row, value)])
    return [each for each in found if each.address == problem.address]


def _finish_noted(states: States, wanted: Collection[bytes], tally: Tally) -> Iterator[Problem]:
    """Finishes what servers have noted and not finished: nothing else may lead there."""
    met: set[bytes] = set()
    noted = projects.every_noted_group(states.store)
    of_projects = (group for group in noted if keys.project_of(group[: _partition_bytes(group)]) in wanted)
    while page := [*islice(of_projects, _PAGE_NOTES)]:
        for group in _unfinished(states, [*filterfalse(met.__contains__, dict.fromkeys(page))]):
            tally.unfinished += 1
            met.add(group)
            part = group[: _partition_bytes(group)]
            try:
                states.look(keys.project_of(part), lambda _: None, group=group)
            except Timeout:
                continue  # it is still being changed, so somebody finishes it
            except Internal:
                root = key_of_path(part, group[len(part) :])
                if root is not None:
                    yield unreadable_head(root)
        tally.told(tally)


def _unfinished(states: States, groups: list[bytes]) -> Iterator[bytes]:
    found = states.store.read([*map(tables.head_address, groups)], deadline=_deadline(), settle=True)
    for group, raw in zip(groups, found, strict=True):
        try:
            done = heads.decode(raw).state is heads.State.APPLIED
        except Internal:
            done = False
        if not done:
            yield group


class _Page(NamedTuple):
    """What a look at some rows shows: candidates, the entities looked at, and groups too big to be looked at so."""

    rows: list[Row]
    found: list[Problem]
    entities: list[Key] = []  # noqa: RUF012 - never changed
    big: list[bytes] = []  # noqa: RUF012


class _Group(NamedTuple):
    """Rows of an entity group, in order."""

    rows: list[Row]
    misplaced: list[Problem]
    entities: list[tuple[Key, bytes]]


class _Walk:
    """Through one project."""

    def __init__(self, states: States, project: bytes, tally: Tally) -> None:
        self._states = states
        self._project = project
        self._tally = tally
        self._highest = {ids.SEQUENTIAL: (0, b"", 0), ids.SCATTERED: (0, b"", 0)}
        self._seen_any = False

    def problems(self) -> Iterator[Problem]:
        wrong = self._states.look(self._project, lambda seen: seen.catalog_problem())
        if wrong is not None:
            yield from still(self._states, wrong)
        yield from self._entities(self._project)
        done = self._project
        for partition, kind in projects.kinds(self._states.store, self._project):
            if partition != done:
                yield from self._entities(partition)
                done = partition
            yield from self._index_rows(partition, kind)
        yield from self._counters()
        if self._seen_any:
            app, database, _ = keys.partition_names(self._project)
            name = b"/".join(filter(None, (app, database))).decode(errors="replace")
            address = tables.project_address(self._project)
            yield from still(self._states, Problem(Fault.UNLISTED_PROJECT, address, None, name))

    def _entities(self, partition: bytes) -> Iterator[Problem]:
        """The kindless rows of a partition, and the groups they lead to."""
        start, last_root = b"", b""
        while True:
            page = self._states.look(self._project, partial(_kindless_page, partition, start, last_root))
            yield from self._judged(page)
            for root in page.big:
                yield from self._big_group(partition, root)
            if len(page.rows) < PAGE_GROUPS:
                return
            start = page.rows[-1][0] + b"\x00"
            last_root = [last_root, *_roots(partition, page.rows)][-1]

    def _big_group(self, partition: bytes, root: bytes) -> Iterator[Problem]:
        start = b""
        while True:
            page = self._states.look(self._project, partial(_group_page, partition, root, start))
            yield from self._judged(page)
            if len(page.rows) < PAGE_ENTITIES:
                return
            start = page.rows[-1][0] + b"\x00"

    def _index_rows(self, partition: bytes, kind: bytes) -> Iterator[Problem]:
        start = b""
        while True:
            page = self._states.look(self._project, partial(_index_page, partition, kind, start))
            self._tally.index_rows += len(page.rows)
            yield from self._judged(page)
            if len(page.rows) < PAGE_ROWS:
                return
            start = page.rows[-1][0] + b"\x00"

    def _judged(self, page: _Page) -> Iterator[Problem]:
        """What is wrong in one state of its group too. An entity is looked at once, whatever seemed wrong with it."""
        self._tally.entities += len(page.entities)
        self._seen_any = self._seen_any or bool(page.entities)
        for entity in page.entities:
            self._note_id(entity)
        looked_at: set[object] = set()
        for problem in page.found:
            key = problem.key
            of_entity = problem.fault not in (Fault.PHANTOM_ROW, Fault.UNREADABLE_HEAD)
            subject = key if of_entity and key is not None else problem.address
            if subject in looked_at or (key is not None and key.group in self._tally.restless):
                continue
            looked_at.add(subject)
            try:
                yield from still(self._states, problem)
            except Timeout:
                self._tally.restless.add(key.group if key is not None else problem.address.scope)
        self._tally.told(self._tally)

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
            counter = self._states.store.read([address], deadline=_deadline())[0]
            following = int.from_bytes(counter, "big") if counter is not None else 1
            if highest >= following:
                detail = f"the {policy.decode()} counter stands at {following}, this id is its number {highest}"
                yield Problem(Fault.LOW_COUNTER, address, key_of_path(place[:cut], place[cut:]), detail)


def _kindless_page(partition: bytes, start: bytes, last_root: bytes, seen: View) -> _Page:
    """Kindless rows, and the groups they lead to but the last of the page before."""
    rows = seen.reader.scan(Table.KINDLESS, partition, KeyRange(start), limit=PAGE_GROUPS, deadline=seen.deadline)
    whole = _Page(rows, [*seen.kindless_problems(partition, rows)], [], [])
    met: list[tuple[Key, bytes]] = []
    for root in _roots(partition, rows):
        if root == last_root:
            continue
        group = _group(partition, root, b"", seen, limit=PAGE_ENTITIES + 1)
        if len(group.rows) > PAGE_ENTITIES:
            whole.big.append(root)
            continue
        whole.found.extend(group.misplaced)
        whole.entities.extend(key for key, _ in group.entities)
        met += group.entities
        if len(met) >= PAGE_ENTITIES:  # and not the whole page, where each may have a MiB
            whole.found.extend(seen.entity_problems(met))
            met = []
    whole.found.extend(seen.entity_problems(met))
    return whole


def _roots(partition: bytes, rows: list[Row]) -> list[bytes]:
    """The first elements of the paths in kindless rows."""
    found = (key_of_path(partition, row) for row, _ in rows)
    return [*dict.fromkeys(key.path[: key.root] for key in found if key is not None)]


def _group_page(partition: bytes, root: bytes, start: bytes, seen: View) -> _Page:
    group = _group(partition, root, start, seen, limit=PAGE_ENTITIES)
    found = [*group.misplaced, *seen.entity_problems(group.entities)]
    return _Page(group.rows, found, [key for key, _ in group.entities])


def _group(partition: bytes, root: bytes, start: bytes, seen: View, *, limit: int) -> _Group:
    rows = seen.reader.scan(Table.GROUPS, partition + root, KeyRange(start), limit=limit, deadline=seen.deadline)
    group = _Group(rows, [], [])
    head = tables.head_address(b"").key
    for row, stored in rows:
        if row == head:
            continue
        key = key_of_path(partition, root + row[1:])
        if key is None or tables.entity_address(key).key != row:
            address = Address(Table.GROUPS, partition + root, b"", row)
            group.misplaced.append(Problem(Fault.MISPLACED_ENTITY, address, None))
        else:
            group.entities.append((key, stored))
    return group


def _index_page(partition: bytes, kind: bytes, start: bytes, seen: View) -> _Page:
    rows = seen.reader.scan(Table.INDEXES, partition + kind, KeyRange(start), limit=PAGE_ROWS, deadline=seen.deadline)
    return _Page(rows, [*seen.index_row_problems(partition, kind, rows)])


def _partition_of(address: Address) -> bytes:
    """The partition that a row's scope begins with, or a project's or catalog's row its project."""
    where = address.scope
    if address.table is Table.META:
        where = address.key[read_text(address.key, 0)[1] :]
    return where[: _partition_bytes(where)]


def _partition_bytes(scope: bytes) -> int:
    """How long the partition is that a scope begins with."""
    end = 0
    for _ in range(3):
        end = read_text(scope, end)[1]
    return end


def _deadline() -> float:
    return time.monotonic() + _SECONDS
