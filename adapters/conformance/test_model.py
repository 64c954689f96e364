"""Every ordered store against a sorted dict, driven by hypothesis.

Each call is cut down to what the store's atomicity lets it hold. Where versions are claimed, rows of the table
INDEXES are written by version only, now and then by one that comes too late; all others are written without.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from adapters.conformance.matrix import Entry
from adapters.contract import (
    ABSENT,
    ANY,
    Address,
    Atomicity,
    Capabilities,
    Check,
    Expectation,
    KeyRange,
    Operation,
    OrderedStore,
    Reader,
    Row,
    Table,
    Write,
    is_conditional,
)
from adapters.errors import Conflict

Model = dict[Address, bytes]
Ends = tuple[bytes, int | None, bytes | None, int | None]
Step = tuple[str, Table, bytes, bytes, bytes, int]

#: Around the chunk sizes of the stores with key limits in the matrix (scope, chunk): 64: 21, 42; 250: 83, 166;
#: 510: 170, 339.
LENGTHS = [41, 42, 43, 84, 126, 165, 166, 167, 332, 338, 339, 340, 678, 1500]

short_keys = st.text(alphabet="\x00\x01a\xff", max_size=3).map(lambda text: text.encode("latin-1"))
long_keys = st.builds(
    lambda byte, length, tail: byte * length + tail,
    st.sampled_from([b"a", b"\xff"]),
    st.sampled_from(LENGTHS),
    short_keys,
)
keys = short_keys | long_keys
scopes = st.sampled_from(
    [b"a\x00", b"b\x00"] * 2
    + [b"s" * 30 + b"\x00", b"s" * 200 + b"\x00", b"s" * 2000 + b"\x00", b"s" * 2000 + b"t\x00"]
)
tables = st.sampled_from([Table.GROUPS, Table.INDEXES])
any_table = tables | st.just(Table.SESSIONS)
values = st.sampled_from([b"\x00", b"one", b"two", b"\xff" * 5000, b"\xff\x00", b"\xff\x01" + b"x" * 95, b"y" * 100])
kinds = st.sampled_from([*["put"] * 9, "delete", "swap", "insert", "check", "wrong"])
ages = st.sampled_from([0, 0, 0, 1, 3, 10])
near = st.none() | st.integers(0, 50)
TICK = 1000


def _operation(kind: str, address: Address, value: bytes, model: Model) -> Operation:
    there: Expectation = model.get(address, ABSENT)
    operations: dict[str, Operation] = {
        "put": Write(address, value),
        "delete": Write(address, None),
        "swap": Write(address, value, there),
        "insert": Write(address, value, ABSENT),
        "check": Check(address, there),
        "wrong": Check(address, b"never written"),
    }
    return operations[kind]


def _expected(model: Model, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool) -> list[Row]:
    rows = sorted(
        (address.key, value)
        for address, value in model.items()
        if address[:2] == (table, scope)
        and keys.start <= address.key
        and (keys.stop is None or address.key < keys.stop)
    )
    return (rows[::-1] if reverse else rows)[:limit]


def cut_down(batch: list[Operation], claims: Capabilities) -> list[Operation]:
    """What of the batch one call to such a store may hold."""
    conditional = [each for each in batch if is_conditional(each)] if claims.compare_and_set else []
    plain = [each for each in batch if not is_conditional(each)]
    if not conditional or claims.atomicity is Atomicity.BATCH:
        return [each for each in batch if claims.compare_and_set or not is_conditional(each)]
    if claims.atomicity is Atomicity.ROW:
        return conditional[:1]
    place = conditional[0].address[:2]
    return plain + [each for each in conditional if each.address[:2] == place]


class StoreMachine(RuleBasedStateMachine):
    """Subclassed per store."""

    store: ClassVar[OrderedStore]

    def __init__(self) -> None:
        super().__init__()
        self.claims = self.store.capabilities
        self.store.drop_tables()
        self.store.ensure_tables()
        self.model: Model = {}
        self.versions: dict[Address, int] = {}
        self.version = TICK * TICK
        self.elsewhere = ThreadPoolExecutor(max_workers=1)
        self.frozen: tuple[AbstractContextManager[Reader], Reader, Model] | None = None

    @property
    def deadline(self) -> float:
        return time.monotonic() + 60

    def fitting(self, key: bytes) -> bytes:
        return key if self.claims.max_key_bytes is None else key[-3:]

    @rule(
        steps=st.lists(st.tuples(kinds, tables, scopes, keys, values, ages), min_size=1, max_size=20),
        volatile=st.sampled_from([False, False, False, True]),
    )
    def write(self, steps: list[Step], volatile: bool) -> None:
        drawn: dict[Address, Operation] = {}
        for kind, table, scope, key, value, age in steps:
            place = Table.SESSIONS if volatile else table
            address = Address(place, self.fitting(scope), b"place", self.fitting(key))
            shortened = value[: self.claims.max_value_bytes]
            drawn[address] = self.aged(_operation(kind, address, shortened, self.model), age)
        batch = cut_down(list(drawn.values()), self.claims)
        wrong = [n for n, operation in enumerate(batch) if not self.holds(operation)]
        if wrong:
            with pytest.raises(Conflict) as raised:
                self.store.write(batch, deadline=self.deadline)
            assert raised.value.index == wrong[0]
            assert raised.value.current == self.model.get(batch[wrong[0]].address)
            return
        self.store.write(batch, deadline=self.deadline)
        for operation in batch:
            self.apply(operation)

    def aged(self, operation: Operation, age: int) -> Operation:
        """The operation with a version that no other has, a late one if it has an age."""
        if not self.claims.versioned_writes or operation.address.table is not Table.INDEXES:
            return operation
        self.version += TICK + 1
        value = operation.value if isinstance(operation, Write) else None
        return Write(operation.address, value, ANY, self.version - age * TICK)

    def holds(self, operation: Operation) -> bool:
        return operation.expect in (ANY, self.model.get(operation.address, ABSENT))

    def apply(self, operation: Operation) -> None:
        if isinstance(operation, Check):
            return
        if operation.version is not None:
            if operation.version < self.versions.get(operation.address, 0):
                return
            self.versions[operation.address] = operation.version
        if operation.value is None:
            self.model.pop(operation.address, None)
        else:
            self.model[operation.address] = operation.value

    def range(self, ends: Ends) -> KeyRange:
        """Drawn ends, or ends near keys that are there."""
        there = sorted({address.key for address in self.model})
        start, near_start, stop, near_stop = ends
        if there and near_start is not None:
            start = there[near_start % len(there)]
        if there and near_stop is not None:
            stop = there[near_stop % len(there)]
        return KeyRange(self.fitting(start), None if stop is None else self.fitting(stop))

    @rule(places=st.lists(st.tuples(any_table, scopes, keys), max_size=6))
    def read(self, places: list[tuple[Table, bytes, bytes]]) -> None:
        drawn = [(table, self.fitting(scope), self.fitting(key)) for table, scope, key in places]
        wanted = [Address(table, scope, b"place", key) for table, scope, key in drawn] + list(self.model)[:5]
        self.check_reads(self.store, wanted, self.model)

    def check_reads(self, reader: Reader, wanted: list[Address], model: Model) -> None:
        assert reader.read(wanted, deadline=self.deadline) == [model.get(address) for address in wanted]
        for table in {address.table for address in wanted}:
            mine = [address for address in wanted if address.table is table]
            columns = [address.scope for address in mine], [address.key for address in mine]
            assert reader.fetch(table, *columns, deadline=self.deadline) == list(map(model.get, mine))

    @rule(
        table=any_table,
        scope=scopes,
        ends=st.tuples(keys, near, st.none() | keys, near),
        limit=st.sampled_from([0, 1, 2, 3, 1000]),
        reverse=st.booleans(),
    )
    def scan(self, ends: Ends, **what: Any) -> None:
        what = self.span(ends, what)
        assert self.store.scan(**what, deadline=self.deadline) == _expected(self.model, **what)

    def span(self, ends: Ends, what: dict[str, Any]) -> dict[str, Any]:
        reverse = what["reverse"] and self.claims.reverse_scan
        return what | {"keys": self.range(ends), "scope": self.fitting(what["scope"]), "reverse": reverse}

    @precondition(lambda self: self.claims.snapshot and self.frozen is None)
    @rule()
    def open_snapshot(self) -> None:
        snapshot = self.store.snapshot()
        reader = self.elsewhere.submit(snapshot.__enter__).result(60)
        # The volatile view begins when it is first used: use it now, so that both models are of this moment.
        self.elsewhere.submit(
            reader.scan, Table.SESSIONS, b"a\x00", KeyRange(), limit=1, deadline=self.deadline
        ).result(60)
        self.frozen = snapshot, reader, dict(self.model)

    @precondition(lambda self: self.frozen is not None)
    @rule(
        table=any_table,
        scope=scopes,
        ends=st.tuples(keys, near, st.none() | keys, near),
        limit=st.sampled_from([1, 3, 1000]),
        reverse=st.booleans(),
    )
    def read_snapshot(self, ends: Ends, **what: Any) -> None:
        what = self.span(ends, what)
        assert self.frozen is not None
        _, reader, model = self.frozen
        rows = self.elsewhere.submit(lambda: reader.scan(**what, deadline=self.deadline)).result(60)
        assert rows == _expected(model, **what)
        self.elsewhere.submit(self.check_reads, reader, [*model, *self.model], model).result(60)

    @precondition(lambda self: self.frozen is not None)
    @rule()
    def close_snapshot(self) -> None:
        assert self.frozen is not None
        self.elsewhere.submit(self.frozen[0].__exit__, None, None, None).result(60)
        self.frozen = None

    def teardown(self) -> None:
        if self.frozen is not None:
            self.close_snapshot()
        self.elsewhere.shutdown()


def test_store_behaves_like_a_sorted_dict(store: OrderedStore, request: pytest.FixtureRequest) -> None:
    entry: Entry = request.node.callspec.params["store"]
    machine = type("Machine", (StoreMachine,), {"store": store})
    run_state_machine_as_test(machine, settings=settings(max_examples=entry.examples, stateful_step_count=25))
