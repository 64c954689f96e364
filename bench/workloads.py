"""The core workloads of YCSB as Datastore calls: records of ten fields of 100 bytes, not indexed.

An update puts a whole entity, as an app does that has it at hand; a read-modify-write gets it first. A scan is a query
of 1 to 100 entities in the order of their keys, from some record on.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench import data
from bench.calls import Alone, Calls, Mix, first_cursor, request
from bench.distributions import Scrambled, Zipfian, scattered
from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto, Property, Reference

FIELDS, FIELD_BYTES = 10, 100
RECORD_BYTES = FIELDS * FIELD_BYTES
MOST_SCANNED = 100
_NAME = b"user" + b"#" * 20
_VALUES = [b"%d" % number * FIELD_BYTES for number in range(FIELDS)]


@dataclass(frozen=True, slots=True)
class Workload:
    """`shares`: of a hundred operations. `latest`: the newest records are the popular ones; else any."""

    shares: Mapping[str, int]
    latest: bool = False


#: In the order in which YCSB has them run, so that the first four find the same records.
WORKLOADS = {
    "A": Workload({"read": 50, "update": 50}),
    "B": Workload({"read": 95, "update": 5}),
    "C": Workload({"read": 100}),
    "F": Workload({"read": 50, "read-modify-write": 50}),
    "D": Workload({"read": 95, "insert": 5}, latest=True),
    "E": Workload({"scan": 95, "insert": 5}),
}


class Records:
    """What one generator knows of the records of `kind`: `count` of them from the start, and those it has inserted.

    `first`: number of the first one that it inserts; other generators, and later measurements, insert others.
    """

    def __init__(self, kind: bytes, count: int, *, first: int, latest: bool, seed: int) -> None:
        self.kind = kind
        self.random = random.Random(seed)
        self._count = count
        self._inserted: list[int] = []
        self._next = first
        self._ages = Zipfian(count, self.random) if latest else None
        self._popular = Scrambled(count, self.random)
        self._get = request(b"Get", v3.GetRequest(key=[data.reference(kind, _NAME)]))
        put = request(b"Put", v3.PutRequest(entity=[entity(data.reference(kind, _NAME), _VALUES)]))
        self._put = _between(put, _VALUES)

    def choose(self) -> bytes:
        """The key name of a record that is there."""
        if self._ages is None:
            return name(self._popular.draw())
        age = self._ages.draw()
        if age < len(self._inserted):
            return name(self._inserted[-1 - age])
        return name(self._count - 1 - (age - len(self._inserted)))

    def new(self) -> int:
        """The number of a record that is not there."""
        self._next += 1
        return self._next - 1

    def inserted(self, number: int) -> None:
        self._inserted.append(number)
        if self._ages is not None:
            self._ages.grow()

    def get(self, key_name: bytes) -> bytes:
        return self._get.replace(_NAME, key_name)

    def put(self, key_name: bytes) -> bytes:
        """With new values. Made of pieces: messages would cost the generator more than the server."""
        values = self.random.randbytes(RECORD_BYTES)
        pieces = [self._put[0].replace(_NAME, key_name)]
        for number, piece in enumerate(self._put[1:-1]):
            pieces += (values[number * FIELD_BYTES : (number + 1) * FIELD_BYTES], piece)
        pieces += (values[-FIELD_BYTES:], self._put[-1].replace(_NAME, key_name))  # the entity group
        return b"".join(pieces)


def name(number: int) -> bytes:
    return b"user%020d" % scattered(number)


def entity(key: Reference, values: Sequence[bytes]) -> bytes:
    proto = EntityProto(key=key)
    proto.entity_group.element.append(key.path.element[0])
    for number, value in enumerate(values):
        field = proto.raw_property.add(meaning=Property.BLOB, name=b"field%d" % number, multiple=False)
        field.value.string_value = value
    return proto.SerializeToString()


def _between(text: bytes, markers: Sequence[bytes]) -> list[bytes]:
    """What is before, between and after the markers."""
    pieces = []
    for marker in markers:
        piece, _, text = text.partition(marker)
        pieces.append(piece)
    return [*pieces, text]


class _Part(Alone):
    """One kind of operation, on records that all kinds of a workload share."""

    name = ""
    least_bytes = 0

    def __init__(self, records: Records) -> None:
        self._records = records

    def go_on(self, line: int, answer: bytes) -> bytes | None:
        del line, answer
        return None


class Read(_Part):
    name = "read"
    least_bytes = RECORD_BYTES

    def begin(self, line: int) -> bytes:
        del line
        return self._records.get(self._records.choose())


class Update(_Part):
    name = "update"

    def begin(self, line: int) -> bytes:
        del line
        return self._records.put(self._records.choose())


class Insert(_Part):
    name = "insert"

    def __init__(self, records: Records) -> None:
        super().__init__(records)
        self._numbers: dict[int, int] = {}  # by line

    def begin(self, line: int) -> bytes:
        number = self._numbers[line] = self._records.new()
        return self._records.put(name(number))

    def go_on(self, line: int, answer: bytes) -> None:
        del answer
        self._records.inserted(self._numbers[line])


class ReadModifyWrite(_Part):
    name = "read-modify-write"
    least_bytes = RECORD_BYTES

    def __init__(self, records: Records) -> None:
        super().__init__(records)
        self._reading: dict[int, bytes] = {}  # by line

    def begin(self, line: int) -> bytes:
        chosen = self._reading[line] = self._records.choose()
        return self._records.get(chosen)

    def go_on(self, line: int, answer: bytes) -> bytes | None:
        del answer
        chosen = self._reading.pop(line, None)
        return None if chosen is None else self._records.put(chosen)


class Scan(_Part):
    name = "scan"
    least_bytes = RECORD_BYTES

    def begin(self, line: int) -> bytes:
        del line
        limit = self._records.random.randint(1, MOST_SCANNED)
        query = data.kind_query(self._records.kind, limit)
        low = query.filter.add(op=v3.Query.Filter.GREATER_THAN_OR_EQUAL).property.add(name=b"__key__", multiple=False)
        low.value.referencevalue.app = data.APP
        low.value.referencevalue.pathelement.add(type=self._records.kind, name=self._records.choose())
        query.order.add(property=b"__key__")
        return request(b"RunQuery", query)

    def go_on(self, line: int, answer: bytes) -> bytes | None:
        del line
        cursor = first_cursor(answer)
        if cursor is None:
            return None
        return request(b"Next", v3.NextRequest(cursor=v3.Cursor.FromString(cursor), count=MOST_SCANNED))


_PARTS: Mapping[str, Callable[[Records], Calls]] = {
    each.name: each for each in (Read, Update, Insert, ReadModifyWrite, Scan)
}


def calls(workload: Workload, records: Records, seed: int) -> Calls:
    """Operations of a workload, without end."""
    return Mix([_PARTS[name](records) for name in workload.shares], [*workload.shares.values()], seed=seed)


class Loading(_Part):
    """Inserts the records with these numbers."""

    name = "insert"

    def __init__(self, records: Records, numbers: range) -> None:
        super().__init__(records)
        self._left = iter(numbers)

    def begin(self, line: int) -> bytes | None:
        del line
        number = next(self._left, None)
        return None if number is None else self._records.put(name(number))
