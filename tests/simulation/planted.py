"""Bugs planted into the commit protocol, each of which the simulation has to find: else it proves nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from adapters.contract import ABSENT, Write
from adapters.errors import Conflict, Unavailable
from pbserver.datastore import heads
from pbserver.datastore.entity_reads import EntityReads
from pbserver.datastore.head_store import HeadStore, soon
from pbserver.datastore.heads import Head, Outcome, State
from pbserver.datastore.notes import Notes
from pbserver.datastore.remembered import Remembered
from pbserver.datastore.row_groups import RowGroups, _new_uid
from pbserver.datastore.tables import entity_address, head_address
from tests.simulation import store


@contextmanager
def _patched(target: Any, **methods: Any) -> Iterator[None]:
    with patch.multiple(target, **methods):
        yield


def no_version_rule() -> Any:
    """Whatever arrives last counts."""

    def put(self: store.Data, write: Write) -> None:
        self.cells[store._place(write.address)] = store.Cell(write.value, write.version or 0)

    return _patched(store.Data, put=put)


def answer_before_apply() -> Any:
    """The client is told that all is written when it will be."""
    apply = HeadStore.apply

    def finish_one(self: RowGroups, group: bytes, decided: Any, deadline: float) -> None:
        self._remembered.add(group, decided.head, decided.entities)
        self._beside.later(lambda: apply(self._heads, decided.rows, soon()))

    return _patched(RowGroups, _finish_one=finish_one)


def marked_applied_before_its_rows_are() -> Any:
    move = HeadStore.move

    def hasty(
        self: HeadStore, group: bytes, old: Head, new: Head, deadline: float, beside: Sequence[Write] = ()
    ) -> bool:
        won = move(self, group, old, new, deadline, beside)
        if won and new.state is State.COMMITTED:
            self.replace(group, heads.as_stored(new), new.applied())
        return won

    return _patched(HeadStore, move=hasty)


def abort_without_asking_the_primary() -> Any:
    def unblock(self: HeadStore, group: bytes, head: Head, deadline: float, waited: float | None) -> None:
        self.replace(group, head, head.emptied(head.slot))

    return _patched(HeadStore, _unblock=unblock)


@contextmanager
def primary_moves_on_before_its_secondaries() -> Iterator[None]:
    def roll(self: HeadStore, group: bytes, head: Head, deadline: float) -> None:
        self.apply(head.rows, deadline)
        self._remembered.add(group, head)

    def finish(self: RowGroups, first: bytes, decision: Head, others: Mapping[bytes, Head], deadline: float) -> None:
        rows = [*decision.rows, *(row for head in others.values() for row in self._heads.split(head.rows)[1])]
        self._heads.apply(rows, deadline)
        self._beside.later(lambda: self._heads.mark_applied(first, decision))

    with _patched(HeadStore, roll=roll), _patched(RowGroups, _finish_several=finish):
        yield


def no_taken_at_its_word() -> Any:
    """A failed compare-and-set means that it failed."""

    def move(
        self: HeadStore, group: bytes, old: Head, new: Head, deadline: float, beside: Sequence[Write] = ()
    ) -> bool:
        try:
            self._store.write([_change(group, old, new), *beside], deadline=deadline)
        except (Conflict, Unavailable):
            return False
        return True

    return _patched(HeadStore, move=move)


def read_groups_not_validated() -> Any:
    prepare = RowGroups._prepare

    def lax(self: RowGroups, bases: Any, to_prepare: Any, prepared: Any, only_read: Any, deadline: float) -> bool:
        return prepare(self, bases, to_prepare, prepared, {}, deadline)

    return _patched(RowGroups, _prepare=lax)


def read_groups_validated_before_the_prepares() -> Any:
    prepare = RowGroups._prepare

    def early(self: RowGroups, bases: Any, to_prepare: Any, prepared: Any, only_read: Any, deadline: float) -> bool:
        valid = prepare(self, bases, {}, prepared, only_read, deadline)
        return valid and prepare(self, bases, to_prepare, prepared, {}, deadline)

    return _patched(RowGroups, _prepare=early)


def aborted_slot_used_again() -> Any:
    """An aborted prepare puts the slot back to what it was."""

    def emptied(self: Head, slot: int) -> Head:
        back = self.recent[-1][0] if self.recent else 0
        return Head(slot=back, recent=self.recent, dropped=self.dropped)

    return _patched(Head, emptied=emptied)


def unknown_write_repeated_blindly() -> Any:
    """No answer: the commit is made once more, under another name."""
    move = HeadStore.move

    def again(
        self: HeadStore, group: bytes, old: Head, new: Head, deadline: float, beside: Sequence[Write] = ()
    ) -> bool:
        if new.state is not State.COMMITTED:
            return move(self, group, old, new, deadline, beside)
        try:
            self._store.write([_change(group, old, new), *beside], deadline=soon())
        except Unavailable:
            base = self.resolve([group], deadline)[group]
            uid, slot = _new_uid(), max(base.slot + 1, new.slot + 1)
            rows = tuple(row._replace(version=slot) for row in new.rows)
            return move(self, group, base, base.committed(slot, uid, rows, new.parts), deadline, beside)
        except Conflict:
            return move(self, group, old, new, deadline, beside)
        return True

    return _patched(HeadStore, move=again)


def lost_although_others_went_by() -> Any:
    """Whoever does not find his commit at the head takes it for lost."""

    def outcome(old: Head, new: Head, found: Head) -> Outcome:
        return heads.outcome(old, new, replace(found, recent=(), dropped=0))

    return _patched(HeadStore, _outcome=staticmethod(outcome))


def views_not_validated() -> Any:
    """What was read of a group is not looked at again."""

    def stand_at(self: HeadStore, slots: Mapping[bytes, int], deadline: float) -> bool:
        return True

    return _patched(HeadStore, stand_at=stand_at)


@contextmanager
def cold_head_read_with_its_rows() -> Iterator[None]:
    """A head and the rows of its group are taken for one state where each row is read on its own."""
    find = RowGroups._find

    def at_once(self: RowGroups, by_group: Any, known: Mapping[bytes, Head], deadline: float) -> Any:
        cold = [group for group in by_group if group not in known]
        rows = [entity_address(each.key) for group in cold for each in by_group[group]]
        values = self._store.read([*rows, *map(head_address, cold)], deadline=deadline)
        read = dict(zip(cold, map(heads.decode, values[len(rows) :]), strict=True))
        found = find(self, by_group, known, deadline)
        if all(head.state is State.APPLIED for head in read.values()):
            found.bases.update(read)
            found.stored.update(zip(rows, values, strict=False))
        return found

    with _patched(RowGroups, _find=at_once), _patched(Remembered, head=lambda self, group: None):
        yield


def gets_do_not_look_at_heads() -> Any:
    """An entity's row is taken for all there is to know."""

    def get(self: RowGroups, work: Callable[[Any], Any]) -> Any:
        return work(self._store)

    return _patched(RowGroups, get=get)


def gets_show_what_is_not_settled() -> Any:
    """A head and its entities that are read as one are shown, though another read may not find them yet."""

    def settle(self: EntityReads, open_: Mapping[bytes, Head], found: Any, deadline: float) -> None:
        return

    return _patched(EntityReads, _settle=settle)


@contextmanager
def head_moved_before_it_is_noted() -> Iterator[None]:
    """The note is written when the commit has ended."""
    decide = RowGroups._decide
    write = Notes.write

    def behind(self: RowGroups, group: bytes, *rest: Any) -> Any:
        decided = decide(self, group, *rest)
        write(self._notes, [group], soon())
        return decided

    with _patched(RowGroups, _decide=behind), _patched(Notes, missing=lambda self, groups: []):
        yield


def _change(group: bytes, old: Head, new: Head) -> Write:
    return Write(head_address(group), heads.encode(new), ABSENT if old.raw is None else old.raw)


PLANTED: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        no_version_rule,
        answer_before_apply,
        marked_applied_before_its_rows_are,
        abort_without_asking_the_primary,
        primary_moves_on_before_its_secondaries,
        no_taken_at_its_word,
        read_groups_not_validated,
        read_groups_validated_before_the_prepares,
        aborted_slot_used_again,
        unknown_write_repeated_blindly,
        lost_although_others_went_by,
        views_not_validated,
        cold_head_read_with_its_rows,
        gets_do_not_look_at_heads,
        gets_show_what_is_not_settled,
        head_moved_before_it_is_noted,
    )
}
