"""Puts right what the entities tell: one batch for each entity or row, which fails when anyone wrote meanwhile."""

import time

from adapters.contract import ABSENT, Check, Operation, OrderedStore, Rows, Table, Write
from adapters.errors import Conflict
from pbserver.datastore import catalog, entities, keys, tables
from pbserver.datastore.groups import slot_of
from pbserver.datastore.keys import Key
from pbserver.verification import checks
from pbserver.verification.checks import View
from pbserver.verification.problem import Fault, Problem
from pbserver.verification.walk import still, view

_ATTEMPTS = 5
_SECONDS = 60.0
_PRESENT = b"\x01"


def repair(store: OrderedStore, problem: Problem) -> bool:
    """Whether nothing is left to do about the problem: it was mended, now or before, or is gone.

    Looks at the store afresh and mends all that is wrong with the problem's entity. The batch checks the group's head
    and the project's indexes, so what a server commits meanwhile wins. False: the problem cannot be mended from what
    is there, or a server kept writing the same group.
    """
    if not problem.fault.is_mendable:
        return False
    for _ in range(_ATTEMPTS):
        found = still(store, problem)
        if not found:
            return True
        if any(not each.fault.is_mendable for each in found):
            return False
        try:
            if problem.fault is Fault.PHANTOM_ROW:
                _delete(store, found[0])
            else:
                assert problem.key is not None
                _complete(store, problem.key)
        except Conflict:
            continue
        return True
    return False


def _delete(store: OrderedStore, problem: Problem) -> None:
    operations: list[Operation] = [Write(problem.address, None, problem.value or ABSENT)]
    key = problem.key
    if key is not None:
        with view(store, keys.project_of(key.partition)) as seen:
            operations += _guards(seen, key)
        if problem not in still(store, problem):
            return  # the guards are older than this look
    store.write(operations, deadline=_deadline())


def _complete(store: OrderedStore, key: Key) -> None:
    """Gives an entity all it lacks."""
    with view(store, keys.project_of(key.partition)) as seen:
        stored = seen.stored(key)
        if stored is None:
            return
        found = [*seen.entity_problems(key, stored)]
        guards = _guards(seen, key)
    operations: list[Operation] = [each for each in guards if not _is_written(found, each)]
    for problem in found:
        if problem.fault in (Fault.MISSING_HEAD, Fault.LOW_HEAD):
            old = next(each.expect for each in guards if each.address == problem.address)
            operations.append(Write(problem.address, _raised(stored, old), old))
        elif problem.fault is Fault.UNLISTED_KIND:
            operations.append(Write(problem.address, _PRESENT))
    store.write(operations, rows=_rows(key, stored, found, seen), deadline=_deadline())


def _is_written(found: list[Problem], operation: Operation) -> bool:
    """Whether the row it checks is written in the same batch."""
    return any(each.address == operation.address for each in found)


def _raised(stored: bytes, old: object) -> bytes:
    before = slot_of(old) if isinstance(old, bytes) else 0
    slot = max(time.time_ns() // 1_000_000, entities.version(stored), before + 1)
    return slot.to_bytes(8, "big")


def _rows(key: Key, stored: bytes, found: list[Problem], seen: View) -> list[Rows]:
    composites = seen.indexes.of_kind(key.kind) if seen.indexes is not None else ()
    needed, allowed = checks.rows_due(key, stored, composites)
    wanted = {**needed, **allowed}
    rows = [each for each in found if each.fault in (Fault.MISSING_ROW, Fault.WRONG_ROW)]
    written: list[Rows] = []
    indexed = {each.address.key: wanted[each.address.key] for each in rows if each.address.table is Table.INDEXES}
    if indexed:
        written.append(Rows(Table.INDEXES, key.partition + key.kind, key.path, indexed))
    if len(indexed) < len(rows):
        kindless = {key.path: tables.row_value(key, repeated=False)}
        written.append(Rows(Table.KINDLESS, key.partition, key.path, kindless))
    return written


def _guards(seen: View, key: Key) -> list[Check]:
    """The batch holds only while neither the group nor the project's indexes have changed."""
    addresses = [tables.head_address(key.group), catalog.catalog_address(seen.project)]
    found = seen.reader.read(addresses, deadline=seen.deadline)
    return [Check(address, value or ABSENT) for address, value in zip(addresses, found, strict=True)]


def _deadline() -> float:
    return time.monotonic() + _SECONDS
