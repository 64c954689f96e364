"""Every store against a sorted dict, driven by hypothesis."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from adapters.contract import ABSENT, ANY, Address, Check, KeyRange, Operation, OrderedStore, Reader, Row, Table, Write
from adapters.errors import Conflict

Model = dict[Address, bytes]
Ends = tuple[bytes, int | None, bytes | None, int | None]

#: Around the chunk sizes of the stores with key limits in the matrix (scope, chunk): 64: 21, 42; 250: 83, 166;
#: 510: 170, 339.
LENGTHS = [41, 42, 43, 84, 126, 165, 166, 167, 332, 338, 339, 340, 678, 1500]
EXAMPLES = {"lmdb-sync": 12, "lmdb-raw-sync": 8, "lmdb-group": 5}

short_keys = st.text(alphabet="\x00\x01a\xff", max_size=3).map(lambda text: text.encode("latin-1"))
long_keys = st.builds(
    lambda byte, length, tail: byte * length + tail,
    st.sampled_from([b"a", b"\xff"]),
    st.sampled_from(LENGTHS),
    short_keys,
)
short_scopes = st.sampled_from([b"a\x00", b"b\x00"])
long_scopes = st.sampled_from(
    [b"s" * 30 + b"\x00", b"s" * 200 + b"\x00", b"s" * 2000 + b"\x00", b"s" * 2000 + b"t\x00"]
)
tables = st.sampled_from([Table.GROUPS, Table.INDEXES])
values = st.sampled_from([b"\x00", b"one", b"two", b"\xff" * 5000])
kinds = st.sampled_from([*["put"] * 9, "delete", "swap", "insert", "check", "wrong"])


def _operation(kind: str, address: Address, value: bytes, model: Model) -> Operation:
    there = model.get(address, ABSENT)
    return {
        "put": Write(address, value),
        "delete": Write(address, None),
        "swap": Write(address, value, there),
        "insert": Write(address, value, ABSENT),
        "check": Check(address, there),
        "wrong": Check(address, b"never written"),
    }[kind]


def _expected(model: Model, table: Table, scope: bytes, keys: KeyRange, *, limit: int, reverse: bool) -> list[Row]:
    rows = sorted(
        (address.key, value)
        for address, value in model.items()
        if address[:2] == (table, scope)
        and keys.start <= address.key
        and (keys.stop is None or address.key < keys.stop)
    )
    return (rows[::-1] if reverse else rows)[:limit]


def machine(store: OrderedStore) -> Callable[[], RuleBasedStateMachine]:  # noqa: C901 - one class, made per store
    limited = store.capabilities.max_key_bytes is not None
    keys = short_keys if limited else short_keys | long_keys
    scopes = short_scopes if limited else short_scopes | long_scopes
    near = st.none() | st.integers(0, 50)

    class StoreMachine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            store.drop_tables()
            store.ensure_tables()
            self.model: Model = {}
            self.elsewhere = ThreadPoolExecutor(max_workers=1)
            self.frozen: tuple[AbstractContextManager[Reader], Reader, Model] | None = None

        @property
        def deadline(self) -> float:
            return time.monotonic() + 60

        @rule(
            steps=st.lists(st.tuples(kinds, tables, scopes, keys, values), min_size=1, max_size=20),
            volatile=st.sampled_from([False, False, False, True]),
        )
        def write(self, steps: list[tuple[str, Table, bytes, bytes, bytes]], volatile: bool) -> None:
            batch: dict[Address, Operation] = {}
            for kind, table, scope, key, value in steps:
                address = Address(Table.SESSIONS if volatile else table, scope, b"place", key)
                batch[address] = _operation(kind, address, value, self.model)
            wrong = [n for n, operation in enumerate(batch.values()) if not self.holds(operation)]
            if wrong:
                with pytest.raises(Conflict) as raised:
                    store.write(list(batch.values()), deadline=self.deadline)
                assert raised.value.index == wrong[0]
                assert raised.value.current == self.model.get(list(batch)[wrong[0]])
                return
            store.write(list(batch.values()), deadline=self.deadline)
            for operation in batch.values():
                self.apply(operation)

        def holds(self, operation: Operation) -> bool:
            return operation.expect in (ANY, self.model.get(operation.address, ABSENT))

        def apply(self, operation: Operation) -> None:
            if isinstance(operation, Check):
                return
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
            return KeyRange(start, stop)

        @rule(places=st.lists(st.tuples(tables | st.just(Table.SESSIONS), scopes, keys), max_size=6))
        def read(self, places: list[tuple[Table, bytes, bytes]]) -> None:
            addresses = [Address(table, scope, b"place", key) for table, scope, key in places] + list(self.model)[:5]
            found = store.read(addresses, deadline=self.deadline)
            assert found == [self.model.get(address) for address in addresses]
            for table in {address.table for address in addresses}:
                wanted = [address for address in addresses if address.table is table]
                columns = [address.scope for address in wanted], [address.key for address in wanted]
                assert store.fetch(table, *columns, deadline=self.deadline) == list(map(self.model.get, wanted))

        @rule(
            table=tables | st.just(Table.SESSIONS),
            scope=scopes,
            ends=st.tuples(keys, near, st.none() | keys, near),
            limit=st.sampled_from([0, 1, 2, 3, 1000]),
            reverse=st.booleans(),
        )
        def scan(self, ends: Ends, **what: Any) -> None:
            what["keys"] = self.range(ends)
            assert store.scan(**what, deadline=self.deadline) == _expected(self.model, **what)

        @precondition(lambda self: self.frozen is None)
        @rule()
        def open_snapshot(self) -> None:
            snapshot = store.snapshot()
            reader = self.elsewhere.submit(snapshot.__enter__).result(60)
            # The volatile view begins when it is first used: use it now, so that both models are of this moment.
            self.elsewhere.submit(
                reader.scan, Table.SESSIONS, b"a\x00", KeyRange(), limit=1, deadline=self.deadline
            ).result(60)
            self.frozen = snapshot, reader, dict(self.model)

        @precondition(lambda self: self.frozen is not None)
        @rule(
            table=tables | st.just(Table.SESSIONS),
            scope=scopes,
            ends=st.tuples(keys, near, st.none() | keys, near),
            limit=st.sampled_from([1, 3, 1000]),
            reverse=st.booleans(),
        )
        def read_snapshot(self, ends: Ends, **what: Any) -> None:
            what["keys"] = self.range(ends)
            assert self.frozen is not None
            _, reader, model = self.frozen
            rows = self.elsewhere.submit(lambda: reader.scan(**what, deadline=self.deadline)).result(60)
            assert rows == _expected(model, **what)
            addresses = [*model, *self.model]
            found = self.elsewhere.submit(lambda: reader.read(addresses, deadline=self.deadline)).result(60)
            assert found == [model.get(address) for address in addresses]
            wanted = [address for address in addresses if address.table is Table.GROUPS]
            columns = [address.scope for address in wanted], [address.key for address in wanted]
            found = self.elsewhere.submit(lambda: reader.fetch(Table.GROUPS, *columns, deadline=self.deadline)).result(
                60
            )
            assert found == list(map(model.get, wanted))

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

    return StoreMachine


def test_store_behaves_like_a_sorted_dict(store: OrderedStore, request: pytest.FixtureRequest) -> None:
    examples = EXAMPLES.get(request.node.callspec.params["store"], 40)
    run_state_machine_as_test(machine(store), settings=settings(max_examples=examples, stateful_step_count=25))
