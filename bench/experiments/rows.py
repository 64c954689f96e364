"""What a put costs by the number of index rows it writes: each row should cost what the row before it cost."""

import random

from bench import data, server
from bench.calls import NAME as KEY_NAME
from bench.calls import Fresh, request
from bench.client import Load
from bench.run import Run, Subject
from protos import datastore_v3_pb2 as v3
from protos.entity_pb2 import EntityProto

NAME = "rows"
ROWS = (40, 160, 640)


def run(bench: Run) -> None:
    with server.pbserver(f"lmdb:{bench.directory / 'store'}?durability=none", bench.server_core) as ours:
        subjects = {
            f"put of {rows} index rows": Subject(
                ours, Load(port=ours.port, connections=1, calls=Fresh(puts(rows)), seconds=bench.scale.seconds)
            )
            for rows in ROWS
        }
        cpu = [each.cpu_us for each in bench.compare(NAME, subjects).values()]
    few, many = ((cpu[n + 1] - cpu[n]) / (ROWS[n + 1] - ROWS[n]) for n in range(2))
    bench.record(NAME, "CPU us a row", few=round(few, 2), many=round(many, 2))
    bench.at_most(NAME, f"put: a row's cost among {ROWS[2]} rows / among {ROWS[1]}", many / few, 1.5)


def puts(rows: int) -> list[bytes]:
    """Of entities with so many indexed properties, with random values."""
    randomly = random.Random(6)
    return [request(b"Put", v3.PutRequest(entity=[entity(rows, randomly)])) for _ in range(50)]


def entity(rows: int, randomly: random.Random) -> bytes:
    proto = EntityProto(key=data.reference(b"Wide", KEY_NAME))
    proto.entity_group.element.append(proto.key.path.element[0])
    for number in range(rows - 1):  # and the kind row
        value = randomly.getrandbits(40)
        proto.property.add(name=b"number%04d" % number, multiple=False).value.int64_value = value
    return proto.SerializeToString()
