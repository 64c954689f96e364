"""The driver's session with the cluster: one per process, shared by all threads."""

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from threading import Lock
from typing import Any, TypeVar

import structlog
from cassandra import ConsistencyLevel, DriverException
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    HostStateListener,
    TokenAwarePolicy,
)
from cassandra.query import BatchStatement, BatchType, tuple_factory

from adapters.cassandra import codec
from adapters.cassandra.codec import Statement
from adapters.cassandra.errors import DENIED, TRANSLATED, translated
from adapters.cassandra.nodes import Facts, Place, facts
from adapters.errors import StoreError, Unavailable, Unsupported

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0  # longer than the nodes' own limits (2 s for writes, 5 s for reads); then another one is asked
HEARTBEAT_SECONDS = 3.0  # how soon a node that answers nothing is found out, twice
RETRY_SECONDS = (0.5, 10.0)  # the pauses between looks at a node that is down double from the one to the other
SCHEMA_SECONDS = 60.0  # for what changes tables
CREATOR_SECONDS = 10.0  # how long the node that creates the tables is waited for when it cannot be used
PAUSE_SECONDS = 0.5  # between two attempts to open the store
AT_ONCE = 32  # requests of one call
LARGE_MESSAGE_BYTES = 70_000
MOST_TRIED = 1000  # partitions, to find some on every node

_SETTINGS = (
    "SELECT name, value FROM system_views.settings WHERE name IN"
    " ('commitlog_segment_size', 'commitlog_sync', 'max_mutation_size', 'native_transport_max_message_size')"
)
_REPLICATION = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = %s"
_TABLES = "SELECT table_name, gc_grace_seconds, read_repair FROM system_schema.tables WHERE keyspace_name = %s"
_TABLE_NAMES = {"pbserver_rows", "pbserver_settings"}

T = TypeVar("T")

log = structlog.get_logger()


class Kind(Enum):
    READ = auto()
    SETTLED_READ = auto()  #: finishes conditional writes that are under way
    WRITE = auto()
    PAXOS = auto()


@dataclass(frozen=True, slots=True)
class Request:
    """One round trip: a statement, or a batch of several in one partition."""

    kind: Kind
    statements: Sequence[Statement]


@dataclass(frozen=True, slots=True)
class Answer:
    columns: Sequence[str]
    rows: Sequence[Any]  #: tuples


class Connection:
    """Thread-safe. Raises Unavailable, naming each node and its cause, when no node can be used."""

    def __init__(self, place: Place) -> None:
        self.where = place.where
        self._place = place
        self._closed = False
        self._prepared: dict[str, Any] = {}
        self._schema_lock = Lock()
        self._has_tables = False
        policy = DCAwareRoundRobinPolicy(place.datacenter)
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(policy),
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=getattr(ConsistencyLevel, place.consistency),
            serial_consistency_level=getattr(ConsistencyLevel, place.serial),
            request_timeout=ANSWER_SECONDS,
            row_factory=tuple_factory,
        )
        self._settled = getattr(ConsistencyLevel, place.serial)
        self._cluster = Cluster(
            [tuple(host) for host in place.hosts],
            port=place.hosts[0].port,
            auth_provider=PlainTextAuthProvider(place.user, place.password) if place.user else None,
            protocol_version=5,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],  # else requests above 4 KB wait 40 ms
            connect_timeout=CONNECT_SECONDS,
            control_connection_timeout=CONNECT_SECONDS,
            reconnection_policy=ExponentialReconnectionPolicy(*RETRY_SECONDS, max_attempts=None),
            idle_heartbeat_interval=HEARTBEAT_SECONDS,
            idle_heartbeat_timeout=HEARTBEAT_SECONDS,
            prepare_on_all_hosts=False,  # each prepares what it is asked; a frozen one would be waited for
            application_name="pbserver",
        )
        self._cluster.register_listener(_Told(self.where))
        try:
            self._session = self._connected()
            self.facts = self._look(policy.local_dc)
        except TRANSLATED as error:
            self.close()
            raise translated(error, self.where) from error
        except StoreError:
            self.close()
            raise

    def _connected(self) -> Any:
        wanted = self._place.datacenter
        try:
            session = self._cluster.connect()
        except NoHostAvailable as error:
            there = {host.datacenter for host in self._cluster.metadata.all_hosts()} - {None}
            if not wanted or not there or wanted in there:
                raise
            raise Unsupported(
                f"{self.where}: no node is in the data centre {wanted!r}; there are {', '.join(sorted(there))}"
            ) from error
        session.default_fetch_size = None  # a page would be a state of its own
        return session

    def _look(self, datacenter: str) -> Facts:
        nodes = sum(host.datacenter == datacenter for host in self._cluster.metadata.all_hosts())
        settings = dict(self._session.execute(_SETTINGS))
        found = self._session.execute(_REPLICATION, [self._place.keyspace]).one()
        return facts(self._place, datacenter, nodes, found and found[0], settings)

    def close(self) -> None:
        self._closed = True
        self._cluster.shutdown()

    def ask(self, request: Request, deadline: float) -> Answer:
        return self.run([request], deadline)[0]

    def run(self, requests: Sequence[Request], deadline: float) -> list[Answer]:
        """The answers, in their order. Of several requests, those that failed say nothing about the others: the first
        failure is raised, when all have ended. Raises Unavailable NO when the deadline has passed already.
        """
        answers: list[Answer] = []
        for start in range(0, len(requests), AT_ONCE):
            some = requests[start : start + AT_ONCE]
            bound = [self._bound(request) for request in some]
            seconds = self._seconds_until(deadline)
            futures = [self._session.execute_async(each, timeout=seconds) for each in bound]
            failures: list[StoreError] = []
            for request, future in zip(some, futures, strict=True):
                try:
                    result = future.result()
                except TRANSLATED as error:
                    wrote = request.kind in (Kind.WRITE, Kind.PAXOS)
                    failure = translated(error, self.where, wrote=wrote, conditional=request.kind is Kind.PAXOS)
                    failure.__cause__ = error
                    failures.append(failure)
                else:
                    answers.append(Answer(result.column_names or (), result.current_rows))
            if failures:
                raise failures[0]
        return answers

    def _seconds_until(self, deadline: float) -> float:
        if self._closed:
            raise Unavailable(f"{self.where}: this store is closed")
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise Unavailable(f"{self.where}: the deadline has passed; nothing was asked")
        return min(seconds, ANSWER_SECONDS)

    def _bound(self, request: Request) -> Any:
        prepared = [self._statement(each.text) for each in request.statements]
        if len(prepared) == 1 and request.kind is not Kind.PAXOS:
            bound = prepared[0].bind(request.statements[0].values)
            if request.kind is Kind.SETTLED_READ:
                bound.consistency_level = self._settled
            return bound
        batch = BatchStatement(BatchType.UNLOGGED)  # one partition is one mutation
        for statement, (_, values) in zip(prepared, request.statements, strict=True):
            batch.add(statement, values)
        return batch

    def _statement(self, text: str) -> Any:
        prepared = self._prepared.get(text)
        if prepared is None:
            if self._closed:
                raise Unavailable(f"{self.where}: this store is closed")
            try:
                prepared = self._session.prepare(text.replace("pbserver_", f"{self._place.keyspace}.pbserver_"))
            except TRANSLATED as error:
                raise translated(error, self.where) from error
            self._prepared[text] = prepared
        return prepared

    def create_tables(self, deadline: float) -> None:
        """Keyspace and tables, where they are missing. Returns when all nodes that are up know them, whoever has
        created them. Raises Unsupported for tables that do not fit the store.
        """
        with self._schema_lock:
            if self._has_tables:
                return
            begun = time.monotonic()
            grace, repair = outlasting(lambda: self._made_table(begun, deadline), deadline)
            if grace < codec.GC_GRACE_SECONDS or repair != codec.READ_REPAIR:
                raise Unsupported(
                    f"{self.where}: pbserver_rows has gc_grace_seconds = {grace} and read_repair = {repair!r}; alter "
                    f"it to {codec.GC_GRACE_SECONDS} or more, so that no late write outlives a delete, and to "
                    f"{codec.READ_REPAIR!r}, so that rows are read as they were written together"
                )
            self._has_tables = True

    def _made_table(self, begun: float, deadline: float) -> tuple[int, str]:
        """The settings of the table of rows."""
        creator = self._creator(time.monotonic() - begun > CREATOR_SECONDS)
        try:
            if not self._tables(creator).keys() >= _TABLE_NAMES:
                self._create_tables(creator)
            self._agree(deadline)
            return self._tables(creator)["pbserver_rows"]
        except TRANSLATED as error:
            raise translated(error, self.where) from error

    def _creator(self, up: bool) -> Any:
        """All servers let one node look and create: two nodes that create a table at once create two of one name."""
        there = [host for host in self._cluster.metadata.all_hosts() if host.datacenter == self.facts.datacenter]
        usable = [host for host in there if host.is_up is not False] if up else []
        return min(usable or there, key=lambda host: host.endpoint)

    def _tables(self, host: Any) -> dict[str, tuple[int, str]]:
        found = self._session.execute(_TABLES, [self._place.keyspace], host=host)
        return {name: (grace, repair) for name, grace, repair in found}

    def _create_tables(self, host: Any) -> None:
        keyspace = self._place.keyspace
        texts = codec.table_creations(keyspace)
        if self._session.execute(_REPLICATION, [keyspace], host=host).one() is None:
            texts.insert(0, codec.keyspace_creation(keyspace, self.facts.datacenter, self.facts.replicas))
            log.info("a keyspace is created", store=self.where, replicas=self.facts.replicas, nodes=self.facts.nodes)
        for text in texts:
            self._session.execute(text, timeout=SCHEMA_SECONDS, host=host)

    def _agree(self, deadline: float) -> None:
        try:
            self._cluster.refresh_schema_metadata(max(deadline - time.monotonic(), 1))
        except DriverException as error:
            raise Unavailable(
                f"{self.where}: the nodes do not agree on which tables there are; `nodetool describecluster` says "
                "which node differs"
            ) from error

    def truncate(self) -> None:
        """Every node has to take part; one that is away is waited for."""
        outlasting(self._truncated, time.monotonic() + SCHEMA_SECONDS)

    def _truncated(self) -> None:
        try:
            self._outwait_writes()
            self._session.execute(codec.truncation(self._place.keyspace), timeout=SCHEMA_SECONDS)
        except TRANSLATED as error:
            raise translated(error, self.where, wrote=True, conditional=True) from error

    def _outwait_writes(self) -> None:
        """Returns when all writes acknowledged so far have come to all of their replicas.

        A write is acknowledged by most replicas, and TRUNCATE overtakes it on its way to the last: 32 of 236 times some
        row was there again. What goes the same way, from each node to each, and is acknowledged by all, comes later.
        Messages above 64 KiB have a way of their own.
        """
        hosts = self._cluster.metadata.all_hosts()
        futures = []
        for size in (1, LARGE_MESSAGE_BYTES):
            unreached = {*hosts}
            for number in range(MOST_TRIED):
                last = self._bound(Request(Kind.WRITE, [codec.last_write(number, size)]))
                last.consistency_level = ConsistencyLevel.ALL
                replicas = self._cluster.metadata.get_replicas(self._place.keyspace, last.routing_key)
                if unreached.intersection(replicas):
                    unreached.difference_update(replicas)
                    futures += [self._session.execute_async(last, host=host) for host in hosts]
                if not unreached:
                    break
        for future in futures:
            future.result()


class _Told(HostStateListener):  # type: ignore[misc]
    """The log says which node the driver leaves alone."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._down: set[Any] = set()

    def on_down(self, host: Any) -> None:
        if host.endpoint not in self._down:
            self._down.add(host.endpoint)
            log.warning("a node of the database is left alone", store=self._where, node=str(host.endpoint))

    def on_up(self, host: Any) -> None:
        if host.endpoint in self._down:
            self._down.discard(host.endpoint)
            log.info("a node of the database is used again", store=self._where, node=str(host.endpoint))

    def on_add(self, host: Any) -> None:
        pass

    def on_remove(self, host: Any) -> None:
        self._down.discard(host.endpoint)


def outlasting(attempt: Callable[[], T], deadline: float) -> T:
    """What `attempt` returns, which is repeated while nodes are away or too busy, or do not know tables that somebody
    has just created. `attempt` may be applied twice.
    """
    while True:
        try:
            return attempt()
        except Unavailable as error:
            if isinstance(error.__cause__, DENIED) or time.monotonic() + PAUSE_SECONDS > deadline:
                raise
        time.sleep(PAUSE_SECONDS)
