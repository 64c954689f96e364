"""What a commit changes, and the row writes that stand for it. The same on every store."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adapters.contract import Operation, Rows, Write
from pbserver.datastore import entities
from pbserver.datastore.catalog import Indexes
from pbserver.datastore.entities import Entity
from pbserver.datastore.errors import DatastoreError
from pbserver.datastore.keys import Key, partition_names, project_of
from pbserver.datastore.tables import PRESENT, entity_address, index_changes, kind_address, project_address


class Mutation(NamedTuple):
    """An entity to be stored, or with `entity=None` deleted. `insert`: the id is ours and must not be in use."""

    key: Key
    entity: Entity | None
    insert: bool = False


class IdInUse(DatastoreError):
    """The id given to a new entity belongs to another entity already."""

    def __init__(self, key: Key) -> None:
        super().__init__("the id allocated for a new entity was already in use, please try again")
        self.key = key


#: What a transaction saw of the groups it read: the slot of each; 0: there was nothing.
Seen = Mapping[bytes, int]


class Changes(NamedTuple):
    """Row writes being collected. `new_kinds`: the scopes of kinds that are listed with them, and projects."""

    operations: list[Operation]
    rows: list[Rows]
    new_kinds: set[bytes]

    @classmethod
    def none(cls) -> "Changes":
        return cls([], [], set())


class Kinds:
    """Which kinds have their row in table `kinds`, and projects in `meta`.

    `remember`: nobody else ever drops this store's tables.
    """

    def __init__(self, *, remember: bool) -> None:
        self._remember = remember
        self._known: set[bytes] = set()

    def missing(self, key: Key, changes: Changes) -> Sequence[Write]:
        """The writes that list the project and the kind of a new entity; none where they are listed."""
        scope = key.partition + key.kind
        if scope in self._known or scope in changes.new_kinds:
            return ()
        project = project_of(key.partition)
        listings = [(scope, kind_address(project, partition_names(key.partition)[2], key.kind))]
        if project not in self._known and project not in changes.new_kinds:
            listings.append((project, project_address(project)))
        changes.new_kinds.update(name for name, _ in listings)
        return [Write(address, PRESENT) for _, address in listings]

    def written(self, changes: Changes) -> None:
        """To be called when the writes of `changes` are done."""
        if self._remember:
            self._known |= changes.new_kinds


def add_mutation(changes: Changes, mutation: Mutation, stored: bytes | None, indexes: Indexes, slot: int) -> None:
    """Adds the writes of one mutation, given what is stored. Raises IdInUse, and BadRequest for too many entries."""
    key, entity, insert = mutation
    composites = indexes.of_kind(key.kind)
    if insert and stored is not None:
        raise IdInUse(key)
    if entity is not None:
        changes.operations.append(Write(entity_address(key), entities.frame(entity.data, slot)))
    elif stored is not None:
        changes.operations.append(Write(entity_address(key), None))
    old = entities.stored_rows(key, stored, composites) if stored is not None else {}
    new = entities.all_rows(entity, composites) if entity is not None else {}
    changes.rows.extend(index_changes(key, old, new))
