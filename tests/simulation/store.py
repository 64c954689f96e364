"""A simulated store with atomicity ROW or SCOPE: what a database may do to its clients, decided by the seed.

Every call waits for its turn. An unconditional write lands row by row, in any order; a row may land late, or twice. A
conditional write, at SCOPE with what is beside it, may be carried out without the answer coming back, or later, or
twice (and then the second answer comes). Until somebody was told that it happened, by its answer, by a read that
settles or by another conditional write of the row, each read may see it or not.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import NamedTuple

from adapters.contract import (
    ABSENT,
    ANY,
    Address,
    Atomicity,
    Capabilities,
    Check,
    Consistency,
    Durable,
    KeyRange,
    Operation,
    Reader,
    Row,
    Rows,
    Table,
    Write,
    addresses,
    row_writes,
)
from adapters.errors import Applied, Conflict, Unavailable, Unsupported
from tests.simulation.scheduler import World

CAPABILITIES = Capabilities(
    atomicity=Atomicity.ROW,
    compare_and_set=True,
    versioned_writes=True,
    ordered=True,
    reverse_scan=True,
    snapshot=False,
    consistency=Consistency.STRONG,
    durable=Durable.SYNCED,
    shared=True,
    version_horizon_seconds=86400.0,
)

_SLOW_SECONDS = 0.02  # until the next row of a read comes, sometimes

_Place = tuple[Table, bytes, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How often the store misbehaves, as shares of calls."""

    lost_answers: float = 0.03
    late_writes: float = 0.03
    doubled_writes: float = 0.03
    refusals: float = 0.02
    unseen: float = 0.3  #: of the reads of what nobody was told of yet
    late_seconds: float = 3.0


NO_FAULTS = Faults(lost_answers=0, late_writes=0, doubled_writes=0, refusals=0, unseen=0)


class Cell(NamedTuple):
    """A row's value (None: deleted) and version."""

    value: bytes | None
    version: int


class Data:
    """The rows, whoever asks for them."""

    def __init__(self, world: World, faults: Faults, atomicity: Atomicity, *, versions: bool = True) -> None:
        self.world = world
        self.faults = faults
        self.capabilities = replace(CAPABILITIES, atomicity=atomicity, versioned_writes=versions)
        self.cells: dict[_Place, Cell] = {}
        #: Of moved heads that nobody was told of: what stood there before, in the rows written beside them as well.
        self.untold: dict[_Place, dict[_Place, bytes | None]] = {}
        self.versions_count = True  #: turned off to plant a bug

    def value(self, place: _Place) -> bytes | None:
        cell = self.cells.get(place)
        return cell.value if cell else None

    def put(self, write: Write) -> None:
        place = _place(write.address)
        cell = self.cells.get(place)
        version = write.version if write.version is not None else (cell.version if cell else 0)
        if cell is not None and version < cell.version and self.versions_count:
            return
        self.cells[place] = Cell(write.value, version)

    def compare_and_set(self, write: Write, beside: Sequence[Write] = ()) -> None:
        """Carries out a conditional write, and what is beside it. Raises Conflict with what was there."""
        place = _place(write.address)
        self.untold.pop(place, None)
        current = self.value(place)
        if (current is not None) if write.expect is ABSENT else current != write.expect:
            raise Conflict("the row is another", index=0, current=current)
        places = [place, *(_place(each.address) for each in beside)]
        if write.address.table is Table.GROUPS:
            self.untold[place] = {each: self.value(each) for each in places}
        for at, each in zip(places, (write, *beside), strict=True):
            self.cells[at] = Cell(each.value, 0)

    def later(self, what: Callable[[], object], seconds: float) -> None:
        """Something under way in the network, which no crash of a server stops."""

        def happen() -> None:
            self.world.sleep(seconds)
            try:
                what()
            except Conflict:
                return

        self.world.start("network", happen)


def _place(address: Address) -> _Place:
    return address.table, address.scope, address.key


class SimulatedStore:
    """One process's access to the data (adapters.contract.OrderedStore).

    `after_write` is called when a write was carried out and before its answer is given: the worst moment to be
    stopped or killed.
    """

    def __init__(self, data: Data, after_write: Callable[[], None] = lambda: None) -> None:
        self.capabilities = data.capabilities
        self._data = data
        self._world = data.world
        self._after_write = after_write
        self.calls = 0

    def ensure_tables(self) -> None:
        return

    def read(self, addresses: Sequence[Address], *, deadline: float, settle: bool = False) -> list[bytes | None]:
        self._turn()
        found: dict[Address, bytes | None] = {}
        for together in self._read_as_one(addresses):
            old = self._older(together, settle=settle)
            found.update((each, old.get(_place(each), self._data.value(_place(each)))) for each in together)
            if len(addresses) > 1 and self._chance(0.2):  # what is not of one state is read one after the other
                self._world.sleep(self._some(_SLOW_SECONDS) if self._chance(0.2) else 0.0)
        self._turn()
        return [found[address] for address in addresses]

    def _read_as_one(self, addresses: Sequence[Address]) -> list[list[Address]]:
        """What is of one state; the parts in the order in which they are read."""
        if self.capabilities.atomicity is Atomicity.ROW:
            return self._world.random.sample([[address] for address in addresses], len(addresses))
        scopes: dict[tuple[Table, bytes], list[Address]] = {}
        for address in addresses:
            scopes.setdefault(address[:2], []).append(address)
        return list(scopes.values())

    def _older(self, together: list[Address], *, settle: bool) -> dict[_Place, bytes | None]:
        """A state from before a conditional write of one of the rows, when that is not to be seen yet."""
        for place in map(_place, together):
            if settle:
                self._data.untold.pop(place, None)
            elif place in self._data.untold and self._chance(self._data.faults.unseen):
                return self._data.untold[place]
        return {}

    def fetch(
        self, table: Table, scopes: Sequence[bytes], keys: Sequence[bytes], *, deadline: float
    ) -> list[bytes | None]:
        return self.read(addresses(table, scopes, keys), deadline=deadline)

    def scan(
        self, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool = False, deadline: float
    ) -> list[Row]:
        self._turn()
        found = sorted(
            (key, cell.value)
            for (its_table, its_scope, key), cell in self._data.cells.items()
            if its_table is table
            and its_scope == scope
            and cell.value is not None
            and key >= keys.start
            and (keys.stop is None or key < keys.stop)
        )
        return (found[::-1] if reverse else found)[:limit]

    def write(self, operations: Sequence[Operation], *, rows: Sequence[Rows] = (), deadline: float) -> None:
        writes = [*operations, *row_writes(rows)]
        conditional = [each for each in writes if isinstance(each, Check) or each.expect is not ANY]
        if conditional and len(writes) > 1 and not self._may_hold(writes, conditional):
            raise Unsupported("not at this atomicity, not in this simulation")
        self._turn()
        untold = self._data.untold
        places = [_place(each.address) for each in conditional]
        try:
            self._carry_out(writes, conditional)
            before = [untold.get(place) for place in places]
        finally:
            self._after_write()
            self._turn()
        for place, its in zip(places, before, strict=True):
            if untold.get(place) is its:  # not that of another write, which came after this one
                untold.pop(place, None)

    def _may_hold(self, writes: Sequence[Operation], conditional: Sequence[Operation]) -> bool:
        scopes = {each.address[:2] for each in writes}
        return self.capabilities.atomicity is Atomicity.SCOPE and len(conditional) == len(scopes) == 1

    def _carry_out(self, writes: Sequence[Operation], conditional: Sequence[Operation]) -> None:
        if all(each.address.table is Table.SESSIONS for each in writes):
            return self._quietly(writes)
        if self._chance(self._data.faults.refusals):
            raise Unavailable("refused", applied=Applied.NO)
        if conditional:
            write = conditional[0]
            assert isinstance(write, Write)
            self._conditional(write, [each for each in writes if isinstance(each, Write) and each is not write])
        else:
            self._unconditional([each for each in writes if isinstance(each, Write)])
        return None

    def _quietly(self, writes: Sequence[Operation]) -> None:
        """What a transaction remembers is not what is tried here: a failure there ends most of them early."""
        for write in writes:
            assert isinstance(write, Write)
            if write.expect is ANY:
                self._data.put(write)
            else:
                self._data.compare_and_set(write)

    def _conditional(self, write: Write, beside: Sequence[Write]) -> None:
        data, faults = self._data, self._data.faults

        def happen() -> None:
            data.compare_and_set(write, beside)

        if self._chance(faults.late_writes):
            data.later(happen, self._some(faults.late_seconds))
            self._time_out()
        if self._chance(faults.doubled_writes):
            data.later(happen, self._some(faults.late_seconds))
        happen()
        if self._chance(faults.lost_answers):
            self._time_out()
        if self._chance(faults.doubled_writes):
            happen()  # the answer is that of the second delivery

    def _unconditional(self, writes: list[Write]) -> None:
        data, faults = self._data, self._data.faults
        scopes = self.capabilities.atomicity is Atomicity.SCOPE
        assert not (scopes and any(each.address.table is Table.GROUPS for each in writes)), "conditional for ever"
        writes.sort(key=lambda write: (write.address.table.value, *write.address[1:]))  # sets differ from run to run
        self._world.random.shuffle(writes)
        lost = self._chance(faults.lost_answers)
        for write in writes:
            if self._chance(0.3):
                self._world.yield_()
            late = self._chance(faults.late_writes)
            if late or self._chance(faults.doubled_writes):
                data.later(lambda write=write: data.put(write), self._some(faults.late_seconds))  # type: ignore[misc]
            if late:
                lost = True  # what is not written yet is not acknowledged either
            else:
                data.put(write)
        if lost:
            self._time_out()

    def _time_out(self) -> None:
        """Others go on while one waits for an answer that does not come."""
        self._world.sleep(self._some(0.05))
        raise Unavailable("no answer", applied=Applied.UNKNOWN)

    def snapshot(self) -> AbstractContextManager[Reader]:
        raise Unsupported("no snapshots")

    def drop_tables(self) -> None:
        self._data.cells.clear()

    def check(self) -> None:
        return

    def close(self) -> None:
        return

    def _turn(self) -> None:
        self.calls += 1
        self._world.yield_()

    def _chance(self, share: float) -> bool:
        return self._world.random.random() < share

    def _some(self, seconds: float) -> float:
        return self._world.random.uniform(0, seconds)
