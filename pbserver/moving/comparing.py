"""Whether two stores hold the same: record by record, side by side."""

from collections.abc import Iterator

from pbserver.datastore.catalog import Indexes
from pbserver.datastore.composites import Composite, State
from pbserver.moving.records import START, Ends, Record, Source, Stored
from pbserver.verification.problem import shown_key, shown_partition

#: What a composite index may be in the target, by what it is in the source. One that is built again may be done.
_MAY_BE = {
    State.BUILDING: {State.BUILDING, State.SERVING, State.ERROR},
    State.SERVING: {State.SERVING},
    State.ERROR: {State.ERROR},
}


def differences(source: Source, target: Source) -> Iterator[str]:
    """In which ways a target is no true copy, one line each: entities by their bytes, composite indexes, counters.

    Counters may be higher: nothing is lost by ids that are skipped.
    """
    left, right = source.records(START), target.records(START)
    ours, theirs = next(left, None), next(right, None)
    while ours is not None or theirs is not None:
        if theirs is None or (ours is not None and ours.place < theirs.place):
            assert ours is not None
            yield f"missing in the target: {_shown(ours)}"
            ours = next(left, None)
        elif ours is None or theirs.place < ours.place:
            yield f"only in the target: {_shown(theirs)}"
            theirs = next(right, None)
        else:
            yield from _differing(ours, theirs)
            ours, theirs = next(left, None), next(right, None)


def _differing(ours: Record, theirs: Record) -> Iterator[str]:
    """Of two records at one place."""
    if isinstance(ours, Stored) and isinstance(theirs, Stored) and ours.data != theirs.data:
        yield f"not the same bytes: {_shown(ours)}"
    if isinstance(ours, Ends) and isinstance(theirs, Ends):
        yield from _differing_indexes(ours, theirs.indexes)
        for policy, wanted, found in (
            ("sequential", ours.sequential, theirs.sequential),
            ("scattered", ours.scattered, theirs.scattered),
        ):
            if found < wanted:
                yield f"{policy} counter of {_shown(ours)}: {wanted} in the source, {found} in the target"


def _differing_indexes(ours: Ends, there: Indexes) -> Iterator[str]:
    wanted = {each.id: each for each in ours.indexes.all if each.state is not State.DELETING}
    found = {each.id: each for each in there.all}
    for number in sorted(wanted.keys() | found.keys()):
        source, target = wanted.get(number), found.get(number)
        same = source is not None and target is not None and _same(source, target)
        if not same:
            states = " and ".join(
                f"{each.state.name.lower() if each is not None else 'not there'} in the {which}"
                for each, which in ((source, "source"), (target, "target"))
            )
            yield f"composite index {number} of {_shown(ours)} is not the same: {states}"
    if there.next_id < ours.indexes.next_id:
        yield f"ids of composite indexes of {_shown(ours)} may be given out again"


def _same(source: Composite, target: Composite) -> bool:
    return source.definition == target.definition and target.state in _MAY_BE[source.state]


def _shown(record: Record) -> str:
    return shown_key(record.key) if isinstance(record, Stored) else shown_partition(record.project)
