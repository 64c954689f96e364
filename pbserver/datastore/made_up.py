"""Entities that nobody stored, given to queries as if they stood in the store: metadata and statistics."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from adapters.contract import Address, KeyRange, Row, Table
from pbserver.datastore import entities, keys
from pbserver.datastore.entities import Entity
from pbserver.datastore.tables import entity_address
from protos.entity_pb2 import EntityProto


def entity(partition: bytes, path: bytes) -> EntityProto:
    """An entity without properties yet."""
    proto = EntityProto(key=keys.to_reference(partition, path))
    proto.entity_group.element.append(proto.key.path.element[0])
    return proto


def finished(proto: EntityProto) -> Entity:
    return entities.build(keys.from_reference(proto.key), proto, proto.SerializeToString())


class MadeUp:
    """A reader (adapters.contract.Reader) of made-up entities and their index rows."""

    def __init__(self, made: Iterable[Entity]) -> None:
        self._stored: dict[tuple[bytes, bytes], bytes] = {}
        by_scope: dict[bytes, dict[bytes, bytes]] = {}
        for each in made:
            address = entity_address(each.key)
            self._stored[address.scope, address.key] = entities.frame(each.data, 0)
            by_scope.setdefault(each.key.partition + each.key.kind, {}).update(each.rows)
        self._rows = {scope: sorted(rows.items()) for scope, rows in by_scope.items()}

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        del deadline, settle
        return [self._stored.get((each.scope, each.key)) for each in addresses]

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        del table, deadline
        return [*map(self._stored.get, zip(scopes, keys, strict=True))]

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        del table, deadline
        rows = self._rows.get(scope, [])
        start = bisect_left(rows, (keys.start,))
        stop = len(rows) if keys.stop is None else bisect_left(rows, (keys.stop,))
        found = rows[start:stop]
        return found[::-1][:limit] if reverse else found[:limit]
