"""Bugs planted into the commit protocol, each of which the simulation has to find: else it proves nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from adapters.contract import ABSENT, Write
from adapters.errors import Conflict, Unavailable
from pbserver.datastore import heads
from pbserver.datastore.heads import Head, Outcome, State
from pbserver.datastore.row_groups import RowGroups, _new_uid, _soon
from pbserver.datastore.tables import head_address
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
    apply = RowGroups._apply

    def behind(self: RowGroups, rows: Sequence[Write], deadline: float) -> None:
        self._later(lambda: apply(self, rows, deadline))

    return _patched(RowGroups, _apply=behind)


def marked_applied_before_its_rows_are() -> Any:
    move = RowGroups._move

    def hasty(self: RowGroups, group: bytes, old: Head, new: Head, deadline: float) -> bool:
        won = move(self, group, old, new, deadline)
        if won and new.state is State.COMMITTED:
            self._replace(group, heads.decode(heads.encode(new)), new.applied())
        return won

    return _patched(RowGroups, _move=hasty)


def abort_without_asking_the_primary() -> Any:
    def unblock(self: RowGroups, group: bytes, head: Head, deadline: float, *, patient: bool) -> None:
        self._replace(group, head, head.emptied(head.slot))

    return _patched(RowGroups, _unblock=unblock)


def primary_moves_on_before_its_secondaries() -> Any:
    def roll(self: RowGroups, head: Head, deadline: float) -> None:
        self._apply(head.rows, deadline)

    def finish(self: RowGroups, first: bytes, decision: Head, secondaries: Mapping[bytes, Head]) -> None:
        self._mark_applied(first, decision)

    return _patched(RowGroups, _roll=roll, _finish=finish)


def no_taken_at_its_word() -> Any:
    """A failed compare-and-set means that it failed."""

    def move(self: RowGroups, group: bytes, old: Head, new: Head, deadline: float) -> bool:
        expected = ABSENT if old.raw is None else old.raw
        try:
            self._store.write([Write(head_address(group), heads.encode(new), expected)], deadline=deadline)
        except (Conflict, Unavailable):
            return False
        return True

    return _patched(RowGroups, _move=move)


def read_groups_not_validated() -> Any:
    prepare = RowGroups._prepare

    def lax(self: RowGroups, bases: Any, to_prepare: Any, only_read: Sequence[bytes], deadline: float) -> None:
        prepare(self, bases, to_prepare, [], deadline)

    return _patched(RowGroups, _prepare=lax)


def read_groups_validated_before_the_prepares() -> Any:
    prepare = RowGroups._prepare

    def early(self: RowGroups, bases: Any, to_prepare: Any, only_read: Sequence[bytes], deadline: float) -> None:
        prepare(self, bases, {}, only_read, deadline)
        prepare(self, bases, to_prepare, [], deadline)

    return _patched(RowGroups, _prepare=early)


def aborted_slot_used_again() -> Any:
    """An aborted prepare puts the slot back to what it was."""

    def emptied(self: Head, slot: int) -> Head:
        back = self.recent[-1][0] if self.recent else 0
        return Head(slot=back, recent=self.recent, dropped=self.dropped)

    return _patched(Head, emptied=emptied)


def unknown_write_repeated_blindly() -> Any:
    """No answer: the commit is made once more, under another name."""
    move = RowGroups._move

    def again(self: RowGroups, group: bytes, old: Head, new: Head, deadline: float) -> bool:
        if new.state is not State.COMMITTED:
            return move(self, group, old, new, deadline)
        try:
            expected = ABSENT if old.raw is None else old.raw
            self._store.write([Write(head_address(group), heads.encode(new), expected)], deadline=_soon())
        except Unavailable:
            base = self._resolve(group, deadline)
            uid, slot = _new_uid(), max(base.slot + 1, new.slot + 1)
            rows = tuple(row._replace(version=slot) for row in new.rows)
            return move(self, group, base, base.committed(slot, uid, rows, new.parts), deadline)
        except Conflict:
            return move(self, group, old, new, deadline)
        return True

    return _patched(RowGroups, _move=again)


def lost_although_others_went_by() -> Any:
    """Whoever does not find his commit at the head takes it for lost."""

    def outcome(old: Head, new: Head, found: Head) -> Outcome:
        return heads.outcome(old, new, replace(found, recent=(), dropped=0))

    return _patched(RowGroups, _outcome=staticmethod(outcome))


def absent_views_not_validated() -> Any:
    """What was read of a group is not looked at again."""

    def stands_at(self: RowGroups, group: bytes, slot: int, deadline: float) -> bool:
        return True

    return _patched(RowGroups, _stands_at=stands_at)


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
        absent_views_not_validated,
    )
}
