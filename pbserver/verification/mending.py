"""Puts right what the entities tell. What a server commits meanwhile wins (states.py)."""

from adapters.contract import OrderedStore, Rows, Table
from pbserver.datastore import tables
from pbserver.datastore.errors import ConcurrentTransaction, Internal, Timeout
from pbserver.datastore.keys import Key
from pbserver.verification import checks
from pbserver.verification.checks import View
from pbserver.verification.problem import Fault, Problem
from pbserver.verification.states import States, states_of
from pbserver.verification.walk import about, still

_ATTEMPTS = 5


def repair(store: OrderedStore, problem: Problem) -> bool:
    """Whether nothing is left to do about the problem: it was mended, now or before, or is gone.

    Looks at the store afresh and mends all that is wrong with the problem's entity; its group moves on by a slot, so
    transactions under way there are told to try again. False: the problem cannot be mended from what is there, or a
    server kept writing the same group.

    A head that was lost is rebuilt above the versions of the entities in its group. Versions of what was deleted
    nobody sees, so this is safe only when no server's clock runs, or ran, ahead of this one's.
    """
    if not problem.fault.is_mendable:
        return False
    states = states_of(store)
    try:
        for _ in range(_ATTEMPTS):
            found = still(states, problem)
            if not found:
                return True
            if any(not each.fault.is_mendable for each in found):
                return False
            _mend(states, problem, found)
    except (Timeout, Internal):
        return False
    return not still(states, problem)


def _mend(states: States, problem: Problem, found: list[Problem]) -> None:
    if listings := [each.address for each in found if each.fault.is_listing]:
        states.list_(listings)
    if len(listings) == len(found):
        return
    try:
        if problem.key is None:
            states.delete_stray(problem.address, problem.value or b"")
        else:
            rebuild = any(each.fault.is_of_head for each in found)
            states.change(problem.key, lambda seen: _rows(seen, problem), rebuild=rebuild)
    except ConcurrentTransaction:
        return  # the next attempt sees what is left


def _rows(seen: View, problem: Problem) -> list[Rows]:
    """What gives an entity the rows it lacks, or takes away the one that is a problem."""
    found = about(seen, problem)
    key, (table, scope, place, row) = problem.key, problem.address
    if problem.fault is Fault.PHANTOM_ROW:
        return [Rows(table, scope, place, {row: None})] if found else []
    wanted = [each for each in found if each.fault in (Fault.MISSING_ROW, Fault.WRONG_ROW)]
    stored = seen.stored(key) if key is not None and wanted else None
    return _right_rows(seen, key, stored, wanted) if key is not None and stored is not None else []


def _right_rows(seen: View, key: Key, stored: bytes, wanted: list[Problem]) -> list[Rows]:
    composites = seen.indexes.of_kind(key.kind) if seen.indexes is not None else ()
    needed, allowed = checks.rows_due(key, stored, composites)
    right = {**needed, **allowed}
    indexed = {each.address.key: right[each.address.key] for each in wanted if each.address.table is Table.INDEXES}
    rows = [Rows(Table.INDEXES, key.partition + key.kind, key.path, indexed)] if indexed else []
    if len(indexed) < len(wanted):
        rows.append(Rows(Table.KINDLESS, key.partition, key.path, {key.path: tables.row_value(key, repeated=False)}))
    return rows
