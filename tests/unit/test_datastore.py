"""The Datastore over the memory store: ids, sessions, commits, transactions, and the format guard."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest

from adapters.build import open_store
from adapters.contract import KeyRange, OrderedStore, Row, Table, Write
from adapters.errors import Applied, Corrupt, Unavailable
from pbserver.datastore import ids, keys, sessions
from pbserver.datastore.core import Datastore
from pbserver.datastore.errors import BadRequest, ConcurrentTransaction, NeedIndex
from pbserver.datastore.execute import Execution, Limits, Progress, position
from pbserver.datastore.keys import is_incomplete
from pbserver.datastore.mutations import IdInUse, Mutation
from pbserver.datastore.planner import plan
from pbserver.datastore.ranges import Place, ValueDescending
from pbserver.datastore.tables import meta_address, row_path, session_scope
from pbserver.datastore.transactions import Handle
from tests.unit.building import APP, FAR, entity, key, query, reference

#: The Datastore keeps its promises on all of them; the weak ones write row by row.
STORES = [
    "memory:",
    "weak:?atomicity=row&versions=yes",
    "weak:?atomicity=row&versions=yes&shuffle=1",
    "weak:?atomicity=row&versions=no",
    "weak:?atomicity=row&versions=yes&max_value_bytes=65536",
    "weak:?atomicity=row&versions=yes&max_value_bytes=1048576&max_key_bytes=250",
    "weak:?atomicity=row&ordered=no",
    "weak:?atomicity=row&ordered=no&stale=yes",
    "weak:?atomicity=scope&versions=yes",
]

A, B = reference((b"K", 1)), reference((b"K", 2))


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[OrderedStore]:
    opened = open_store(request.param)
    yield opened
    opened.close()


@pytest.fixture
def datastore(store: OrderedStore) -> Datastore:
    made = Datastore(store, testing=True)
    made.prepare(deadline=FAR)
    return made


def put(datastore: Datastore, *made: object, handle: Handle | None = None) -> int | None:
    mutations = [Mutation(each.key, each) for each in made]  # type: ignore[attr-defined]
    return datastore.write(mutations, handle, deadline=FAR)


def begin(datastore: Datastore, *, cross_group: bool = False, read_only: bool = False) -> Handle:
    return datastore.transactions.begin(APP, cross_group=cross_group, read_only=read_only, deadline=FAR)


def test_a_store_of_another_format_is_refused_untouched(store: OrderedStore) -> None:
    store.write([Write(meta_address("format"), b"pbserver 99")], deadline=FAR)
    with pytest.raises(Corrupt, match="format b'pbserver 99'"):
        Datastore(store).prepare(deadline=FAR)
    assert store.read([meta_address("format")], deadline=FAR) == [b"pbserver 99"]


@pytest.mark.parametrize("reached", [True, False], ids=["and was applied", "and was not"])
def test_a_store_is_prepared_although_nobody_knows_what_became_of_the_first_write(
    store: OrderedStore, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    written = store.write
    attempts = 0

    def times_out_once(*arguments: Any, **settings: Any) -> None:
        nonlocal attempts
        attempts += 1
        if attempts > 1 or reached:
            written(*arguments, **settings)
        if attempts == 1:
            raise Unavailable("no answer in time", Applied.UNKNOWN)

    monkeypatch.setattr(store, "write", times_out_once)
    Datastore(store).prepare(deadline=FAR)
    assert attempts == 2


def test_a_store_that_never_answers_is_given_up_at_the_deadline(
    store: OrderedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times_out(*_: Any, **__: Any) -> None:
        raise Unavailable("no answer in time", Applied.UNKNOWN)

    monkeypatch.setattr(store, "write", times_out)
    with pytest.raises(Unavailable, match="no answer in time"):
        Datastore(store).prepare(deadline=time.monotonic() + 0.05)


def test_only_a_testing_server_drops_its_data(store: OrderedStore) -> None:
    with pytest.raises(BadRequest, match="only a server started for testing"):
        Datastore(store).reset(deadline=FAR)


def test_scattered_ids_reverse_and_stay_exact_in_a_double() -> None:
    scattered = [ids.scatter(counter) for counter in range(1, 2000)]
    assert [ids.unscatter(each) for each in scattered] == list(range(1, 2000))
    assert all(2**52 <= each < 2**53 and int(float(each)) == each for each in scattered)
    assert ids.unscatter(5) is None
    with pytest.raises(BadRequest, match="used up"):
        ids.scatter(ids.MAX_SCATTERED_COUNTER)


def test_ids_are_unique_across_servers_and_threads(store: OrderedStore) -> None:
    part = key((b"K", 1)).partition
    servers = [ids.Ids(store, block=7) for _ in range(3)]
    given: list[int] = []

    def take(server: ids.Ids) -> None:
        mine = [server.next(part, ids.SEQUENTIAL, deadline=FAR) for _ in range(100)]
        mine += range(*[sum(pair) for pair in zip(server.allocate(part, 5, deadline=FAR), (0, 1), strict=True)])
        given.extend(mine)

    threads = [threading.Thread(target=take, args=(server,)) for server in servers * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == len(set(given)) == 6 * 105


def test_ids_up_to_a_maximum_and_reserved_ones_are_never_given(store: OrderedStore) -> None:
    part = key((b"K", 1)).partition
    server = ids.Ids(store, block=1)
    assert server.allocate_up_to(part, 10, deadline=FAR) == (1, 10)
    assert server.allocate_up_to(part, 5, deadline=FAR) == (11, 10)
    server.reserve(part, 20, deadline=FAR)
    assert server.next(part, ids.SEQUENTIAL, deadline=FAR) == 21
    first = server.next(part, ids.SCATTERED, deadline=FAR)
    server.reserve(part, ids.scatter(5), deadline=FAR)
    assert ids.unscatter(first) == 1
    assert ids.unscatter(server.next(part, ids.SCATTERED, deadline=FAR)) == 6
    for size in (0, -1):
        with pytest.raises(BadRequest, match="greater than 0"):
            server.allocate(part, size, deadline=FAR)
    with pytest.raises(BadRequest, match="ids end at"):
        server.allocate(part, 2**53, deadline=FAR)


def test_forgotten_sessions_are_swept_and_young_ones_stay(store: OrderedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = sessions.Sessions(store)
    kept.sweep(deadline=FAR)
    old = kept.create(b"q", b"old", deadline=FAR)
    later = time.time() + sessions.KEPT_SECONDS + 120
    monkeypatch.setattr(time, "time", lambda: later)
    young = kept.create(b"q", b"young", deadline=FAR)
    assert kept.sweep(deadline=FAR) == 1
    assert kept.read(old, b"q", deadline=FAR) == [None]
    assert kept.read(young, b"q", deadline=FAR) == [b"young"]
    assert store.scan(Table.SESSIONS, session_scope(old), KeyRange(), limit=9, deadline=FAR) == []


def test_an_inserted_entity_never_overwrites(datastore: Datastore) -> None:
    put(datastore, entity(A, p=1))
    with pytest.raises(IdInUse):
        datastore.write([Mutation(key((b"K", 1)), entity(A, p=2), insert=True)], None, deadline=FAR)


def test_versions_grow_with_every_change_of_a_group(datastore: Datastore) -> None:
    versions = [put(datastore, entity(A, p=n)) for n in range(50)]
    assert all(b > a for a, b in pairwise(versions))  # type: ignore[operator]


def test_a_transaction_is_invalidated_by_a_plain_put(datastore: Datastore) -> None:
    put(datastore, entity(A, p=1))
    handle = begin(datastore)
    assert datastore.get([key((b"K", 1))], handle, deadline=FAR) != [None]
    put(datastore, entity(A, p=2), handle=handle)
    put(datastore, entity(A, p=3))
    with pytest.raises(ConcurrentTransaction):
        datastore.transactions.commit(handle, deadline=FAR)
    with pytest.raises(BadRequest, match="no longer valid"):
        datastore.transactions.commit(handle, deadline=FAR)


def test_write_skew_is_refused(datastore: Datastore) -> None:
    put(datastore, entity(A, p=1), entity(B, p=1))
    first, second = begin(datastore, cross_group=True), begin(datastore, cross_group=True)
    for handle in (first, second):
        datastore.get([key((b"K", 1)), key((b"K", 2))], handle, deadline=FAR)
    put(datastore, entity(A, p=0), handle=first)
    put(datastore, entity(B, p=0), handle=second)
    datastore.transactions.commit(first, deadline=FAR)
    with pytest.raises(ConcurrentTransaction):
        datastore.transactions.commit(second, deadline=FAR)


def test_a_read_that_would_not_fit_the_earlier_ones_is_refused_at_once(datastore: Datastore) -> None:
    put(datastore, entity(A, p=1), entity(B, p=1))
    handle = begin(datastore, cross_group=True)
    datastore.get([key((b"K", 1))], handle, deadline=FAR)
    put(datastore, entity(A, p=2), entity(B, p=2))
    with pytest.raises(ConcurrentTransaction):
        datastore.get([key((b"K", 2))], handle, deadline=FAR)


def test_a_transaction_sees_nothing_of_its_own_writes_and_nobody_sees_them_before_the_commit(
    datastore: Datastore,
) -> None:
    handle = begin(datastore)
    put(datastore, entity(A, p=1), handle=handle)
    assert datastore.get([key((b"K", 1))], handle, deadline=FAR) == [None]
    assert datastore.get([key((b"K", 1))], None, deadline=FAR) == [None]
    changed, _ = datastore.transactions.commit(handle, deadline=FAR)
    assert changed == [key((b"K", 1))]
    assert datastore.get([key((b"K", 1))], None, deadline=FAR) != [None]


def test_the_last_change_of_a_key_counts(datastore: Datastore) -> None:
    handle = begin(datastore)
    put(datastore, entity(A, p=1), handle=handle)
    datastore.write([Mutation(key((b"K", 1)), None)], handle, deadline=FAR)
    datastore.transactions.commit(handle, deadline=FAR)
    assert datastore.get([key((b"K", 1))], None, deadline=FAR) == [None]


class Interrupted:
    """A store that lets somebody else act before its n-th call of reading or writing."""

    def __init__(self, inner: OrderedStore) -> None:
        self._inner = inner
        self._calls_left = -1
        self._meanwhile: Callable[[], object] = list

    def before_call(self, number: int, meanwhile: Callable[[], object]) -> None:
        self._calls_left, self._meanwhile = number, meanwhile

    def __getattr__(self, name: str) -> Any:
        if name in {"read", "scan", "write"}:
            self._calls_left -= 1
            if self._calls_left == 0:
                self._meanwhile()
        return getattr(self._inner, name)


@pytest.mark.parametrize("calls", range(1, 12))
@pytest.mark.parametrize(("first", "second"), [("rollback", "commit"), ("commit", "rollback"), ("commit", "commit")])
def test_of_two_ends_of_a_transaction_one_succeeds_and_all_it_buffered_follows(
    store: OrderedStore, calls: int, first: str, second: str
) -> None:
    interrupted = Interrupted(store)
    datastore = Datastore(interrupted, testing=True)  # type: ignore[arg-type]
    datastore.prepare(deadline=FAR)
    handle = begin(datastore, cross_group=True)
    put(datastore, entity(A), entity(B), handle=handle)
    succeeded = []

    def end(how: str) -> None:
        with suppress(BadRequest):
            getattr(datastore.transactions, how)(handle, deadline=FAR)
            succeeded.append(how)

    interrupted.before_call(calls, lambda: end(second))
    end(first)
    end(second)  # it may have come to none before: at the latest it comes now
    assert len(succeeded) == 1
    stored = datastore.get([key((b"K", 1)), key((b"K", 2))], None, deadline=FAR)
    assert [found is not None for found in stored] == [succeeded == ["commit"]] * 2


def _second_group(datastore: Datastore) -> None:
    handle = begin(datastore)
    put(datastore, entity(A), handle=handle)
    datastore.get([key((b"K", 2))], handle, deadline=FAR)


def _too_many_groups(datastore: Datastore) -> None:
    handle = begin(datastore, cross_group=True)
    datastore.get([key((b"K", number)) for number in range(1, 26)], handle, deadline=FAR)
    put(datastore, entity(reference((b"K", 26))), handle=handle)


def _write_in_read_only(datastore: Datastore) -> None:
    put(datastore, entity(A), handle=begin(datastore, read_only=True))


def _unknown(datastore: Datastore) -> None:
    datastore.transactions.commit(Handle(sessions.new_handle(), APP), deadline=FAR)


def _expired(datastore: Datastore) -> None:
    handle = begin(datastore)
    datastore.transactions.commit(Handle(handle.number - (61_000 << 22), APP), deadline=FAR)


def _of_another_app(datastore: Datastore) -> None:
    datastore.transactions.commit(Handle(begin(datastore).number, b"other"), deadline=FAR)


def _rolled_back(datastore: Datastore) -> None:
    handle = begin(datastore)
    datastore.transactions.rollback(handle, deadline=FAR)
    put(datastore, entity(A), handle=handle)


def _query_without_ancestor(datastore: Datastore) -> None:
    datastore.query(query(), Progress(None, 0, None), 1, begin(datastore), deadline=FAR)


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (_second_group, "explicitly specified"),
        (_too_many_groups, "too many entity groups"),
        (_write_in_read_only, "read-only transaction"),
        (_unknown, "no longer valid"),
        (_expired, "has expired"),
        (_of_another_app, "another app"),
        (_rolled_back, "no longer valid"),
        (_query_without_ancestor, "Only ancestor queries"),
    ],
)
def test_a_misused_transaction_is_refused(
    datastore: Datastore, misuse: Callable[[Datastore], None], message: str
) -> None:
    with pytest.raises(BadRequest, match=message):
        misuse(datastore)


def test_sorting_in_memory_has_a_bound(datastore: Datastore) -> None:
    put(datastore, *(entity(reference((b"K", n)), p=n, q=-n) for n in range(1, 12)))
    asked = plan(query(orders=[(b"p", False), (b"q", False)]))
    reader = datastore._store
    limits = Limits(300, 2_000_000, 1000, 10)
    with pytest.raises(NeedIndex, match="more than 10 entities"):
        Execution(asked, reader, limits, FAR).batch(Progress(None, 0, None), 5)


def test_an_answer_is_cut_at_its_byte_limit_and_goes_on(datastore: Datastore) -> None:
    put(datastore, *(entity(reference((b"K", n)), p=b"x" * 1000) for n in range(1, 61)))
    limits = Limits(300, 10_000, 1000, 10)
    progress, sizes = Progress(None, 0, None), []
    more = True
    while more:
        batch = Execution(plan(query()), datastore._store, limits, FAR).batch(progress, 300)
        sizes.append(len(batch.frames))
        more = batch.more
    assert sum(sizes) == 60
    assert max(sizes) <= 10_000 // 1000 + 1


@pytest.mark.parametrize("page", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("spread", [1, 3, 40])
def test_values_descend_and_keys_ascend_under_equal_values(datastore: Datastore, page: int, spread: int) -> None:
    put(datastore, *(entity(reference((b"K", n)), p=n % spread) for n in range(1, 41)))
    source = plan(query(orders=[(b"p", True)])).source
    assert isinstance(source, ValueDescending)
    found: list[Row] = []
    after = None
    while rows := source.rows(datastore._store, after, page, FAR):
        assert len(rows) <= page
        found += rows
        after = Place(rows[-1][0])
    expected = sorted(range(1, 41), key=lambda n: (-(n % spread), n))
    assert [row_path(*row) for row in found] == [key((b"K", n)).path for n in expected]


@pytest.mark.parametrize("descending", [False, True])
def test_between_cursors_that_stand_the_wrong_way_round_there_is_nothing(
    datastore: Datastore, descending: bool
) -> None:
    put(datastore, *(entity(reference((b"K", n)), p=value) for n, value in enumerate([3, 3, 3, 1, 2, 2], 1)))
    asked = query(orders=[(b"p", descending)])
    everything = datastore.query(asked, Progress(None, 0, None), 100, None, deadline=FAR)
    places = [position(everything.plan, row) for row, _ in everything.rows]
    for start, end in product(range(6), repeat=2):
        between = replace(asked, start=places[start], end=places[end])
        found = datastore.query(between, Progress(None, 0, None), 100, None, deadline=FAR).rows
        assert found == everything.rows[start + 1 : end + 1]


def test_a_previous_transaction_has_to_be_of_the_same_kind(datastore: Datastore) -> None:
    previous = begin(datastore, cross_group=True)
    with pytest.raises(BadRequest, match="same options as previous_transaction"):
        datastore.transactions.abandon(previous, cross_group=False, deadline=FAR)
    datastore.transactions.abandon(previous, cross_group=True, deadline=FAR)
    datastore.transactions.abandon(previous, cross_group=False, deadline=FAR)  # it is over


def test_an_empty_name_is_no_request_for_an_id() -> None:
    path = reference((b"K", None)).path
    assert is_incomplete(path)
    path.element[0].name = b""
    assert not is_incomplete(path)
    with pytest.raises(BadRequest, match="missing key id/name"):
        keys.encode_element(path.element[0])
