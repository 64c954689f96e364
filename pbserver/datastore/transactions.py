"""Transactions: optimistic, serializable, up to 25 entity groups, also against plain puts and deletes.

An open transaction is a few rows under its handle, so every call of it may meet another worker:

    h            its header (TransactionHeader), `closed` once a commit or a rollback has claimed it
    g group      the slot of a group as first read (`r` + slot), or `w`: written but not read
    m key        a buffered put or delete, behind its version (4 bytes); the last one of a key counts

A read is of one state with all groups read before (groups.py): had one moved, the answer is ConcurrentTransaction, so
no call ever shows a state that never was. The commit checks all of them once more.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from adapters.contract import ABSENT, Atomicity, OrderedStore, Reader, Row, Write
from adapters.errors import Conflict
from pbserver.datastore import entities, keys
from pbserver.datastore.errors import BadRequest, ConcurrentTransaction
from pbserver.datastore.groups import Beside, Groups, Result
from pbserver.datastore.keys import Key
from pbserver.datastore.mutations import IdInUse, Mutation
from pbserver.datastore.sessions import Sessions, age_seconds
from pbserver.datastore.tables import session_address
from protos.entity_pb2 import EntityProto
from protos.sessions_pb2 import TransactionHeader

MAX_GROUPS = 25
LIFETIME_SECONDS = 60

_HEADER = b"h"
_CLOSED = b"closed"
_READ = b"r"
_WRITTEN = b"w"
_PUT = b"p"
_INSERT = b"i"
_DELETE = b"d"
_VERSION_BYTES = 4
_PLACE = Struct(">cHH")  # what, length of the partition, length of the first element

_GONE = "The referenced transaction has expired or is no longer valid."


class Handle(NamedTuple):
    """How a client names its transaction."""

    number: int
    app: bytes


class _Open(NamedTuple):
    header: TransactionHeader
    serialized: bytes
    groups: dict[bytes, bytes]


class Transactions:
    def __init__(self, store: OrderedStore, sessions: Sessions, groups: Groups, beside: Beside) -> None:
        self._store = store
        self._sessions = sessions
        self._groups = groups
        self._beside = beside

    def begin(self, app: bytes, *, cross_group: bool, read_only: bool, deadline: float) -> Handle:
        header = TransactionHeader(app=app, cross_group=cross_group, read_only=read_only)
        number = self._sessions.create(_HEADER, header.SerializeToString(), deadline=deadline)
        return Handle(number, app)

    def read(
        self, handle: Handle, groups: Collection[bytes], work: Callable[[Reader], Result], *, deadline: float
    ) -> Result:
        """What `work` reads of `groups`, consistent with everything the transaction has read before."""
        current = self._load(handle, deadline)
        joined = [group for group in groups if not _was_read(current.groups, group)]
        self._check_count(current, joined)
        result, slots = self._groups.view(_seen(current.groups), joined, work, deadline=deadline)
        found = {group: _READ + slot.to_bytes(8, "big") for group, slot in slots.items()}
        while not self._join(handle, current, found, deadline):
            current = self._load(handle, deadline)  # another call of this transaction touched one of them as well
            if any(current.groups[group] != slot for group, slot in found.items() if _was_read(current.groups, group)):
                raise ConcurrentTransaction("Concurrency exception.")
            found = {group: slot for group, slot in found.items() if not _was_read(current.groups, group)}
        return result

    def buffer(self, handle: Handle, mutations: Iterable[Mutation], *, deadline: float) -> None:
        """Keeps puts and deletes until the commit."""
        mutations = list(mutations)
        groups = dict.fromkeys(mutation.key.group for mutation in mutations)
        while True:
            current = self._load(handle, deadline)
            if current.header.read_only:
                raise BadRequest("Cannot modify entities in a read-only transaction.")
            joined = [group for group in groups if group not in current.groups]
            self._check_count(current, joined)
            if self._join(handle, current, dict.fromkeys(joined, _WRITTEN), deadline):
                break
        rows = dict(map(_to_row, mutations))  # of several changes of one key the last counts
        version = self._next_version(handle, rows, deadline)
        self._sessions.put(
            handle.number,
            [(part, version.to_bytes(4, "big") + value) for part, value in rows.items()],
            version=version,
            deadline=deadline,
        )

    def _next_version(self, handle: Handle, parts: Collection[bytes], deadline: float) -> int:
        """Above those of the same keys' earlier changes, which a store that writes row by row may deliver late."""
        if self._store.capabilities.atomicity is Atomicity.BATCH:
            return 0
        earlier = self._sessions.read(handle.number, *parts, deadline=deadline)
        return 1 + max(int.from_bytes(value[:4], "big") for value in (*earlier, bytes(4)) if value is not None)

    def commit(self, handle: Handle, *, deadline: float) -> tuple[list[Key], int]:
        """Makes the buffered changes visible, all or none: the keys changed, and their version.

        Whatever happens, the transaction is over. Raises ConcurrentTransaction when a group that was read has moved.
        """
        self._claim(handle, self._load(handle, deadline), deadline)
        rows = self._sessions.scan(handle.number, b"g", b"n", deadline=deadline)
        groups = {part[1:]: value for part, value in rows if part[:1] == b"g"}
        mutations = [_from_row(part, value) for part, value in rows if part[:1] == b"m"]
        try:
            if not mutations:
                return [], 0
            version = self._groups.commit(mutations, _seen(groups), deadline=deadline)
        except IdInUse as error:
            raise BadRequest(str(error)) from error
        finally:
            self._delete(handle, rows, deadline)
        return [mutation.key for mutation in mutations], version

    def rollback(self, handle: Handle, *, deadline: float) -> None:
        """Forgets the transaction and what it buffered."""
        self._forget(handle, self._load(handle, deadline), deadline)

    def abandon(self, handle: Handle, *, cross_group: bool, deadline: float) -> None:
        """Forgets a transaction, if it is not over already, in favour of the one that its client begins now."""
        try:
            previous = self._load(handle, deadline)
        except BadRequest:
            return
        if previous.header.cross_group != cross_group:
            raise BadRequest("Transaction should have same options as previous_transaction")
        with suppress(BadRequest):  # over in the meantime
            self._forget(handle, previous, deadline)

    def _claim(self, handle: Handle, current: _Open, deadline: float) -> None:
        """Ends the transaction; whoever claims it alone may commit what it buffered, or drop it."""
        if not self._sessions.replace(handle.number, _HEADER, current.serialized, _CLOSED, deadline=deadline):
            raise BadRequest(_GONE)

    def _forget(self, handle: Handle, current: _Open, deadline: float) -> None:
        self._claim(handle, current, deadline)
        rows = self._sessions.scan(handle.number, b"g", b"n", deadline=deadline)
        self._delete(handle, rows, deadline)

    def _delete(self, handle: Handle, rows: Collection[Row], deadline: float) -> None:
        """Gives back the space; what is forgotten here is swept."""

        def delete() -> None:
            self._sessions.delete(handle.number, [part for part, _ in rows], deadline=deadline)

        if self._groups.steady or not self._beside.later(delete):
            delete()  # in one process it costs less than handing it over

    def _load(self, handle: Handle, deadline: float) -> _Open:
        number, app = handle
        age = age_seconds(number)
        if not -LIFETIME_SECONDS < age < LIFETIME_SECONDS:
            raise BadRequest(_GONE)
        rows = self._sessions.scan(number, b"g", b"i", deadline=deadline)
        serialized = next((value for part, value in rows if part == _HEADER), _CLOSED)
        if serialized == _CLOSED:
            raise BadRequest(_GONE)
        header = TransactionHeader.FromString(serialized)
        if header.app != app:
            raise BadRequest(f"the transaction belongs to another app than {app.decode(errors='replace')}")
        return _Open(header, serialized, {part[1:]: value for part, value in rows if part[:1] == b"g"})

    def _check_count(self, current: _Open, joined: Collection[bytes]) -> None:
        count = len(current.groups.keys() | joined)
        if any(keys.app_of(group) != current.header.app for group in joined):
            raise BadRequest(f"Transactions cannot span applications (expected {current.header.app.decode()})")
        if current.header.cross_group:
            if count > MAX_GROUPS:
                raise BadRequest("operating on too many entity groups in a single transaction.")
        elif count > 1:
            raise BadRequest("cross-groups transaction need to be explicitly specified (xg=True)")

    def _join(self, handle: Handle, current: _Open, rows: dict[bytes, bytes], deadline: float) -> bool:
        """Records groups touched for the first time; False when another call of this transaction came between."""
        writes = [
            Write(session_address(handle.number, b"g" + group), value, current.groups.get(group, ABSENT))
            for group, value in rows.items()
        ]
        try:
            for together in self._at_once(writes):
                self._store.write(together, deadline=deadline)
        except Conflict:
            return False
        return True

    def _at_once(self, writes: list[Write]) -> list[list[Write]]:
        """Conditional writes as the store can take them. A group recorded does no harm when a later one is not."""
        if not writes or self._store.capabilities.atomicity is Atomicity.BATCH:
            return [writes] if writes else []
        return [[write] for write in writes]


def _was_read(groups: dict[bytes, bytes], group: bytes) -> bool:
    return groups.get(group, _WRITTEN) != _WRITTEN


def _seen(groups: dict[bytes, bytes]) -> dict[bytes, int]:
    return {group: int.from_bytes(value[1:], "big") for group, value in groups.items() if value[:1] == _READ}


def _to_row(mutation: Mutation) -> tuple[bytes, bytes]:
    key, entity, insert = mutation
    what = _DELETE if entity is None else _INSERT if insert else _PUT
    place = _PLACE.pack(what, len(key.partition), key.root)
    return b"m" + key.partition + key.path, place + (entity.data if entity else b"")


def _from_row(part: bytes, value: bytes) -> Mutation:
    what, length, root = _PLACE.unpack_from(value, _VERSION_BYTES)
    path = part[1 + length :]
    key = Key(part[1 : 1 + length], path, root, keys.last_kind(path))
    if what == _DELETE:
        return Mutation(key, None)
    data = value[_VERSION_BYTES + _PLACE.size :]
    return Mutation(key, entities.build(key, EntityProto.FromString(data), data), what == _INSERT)
