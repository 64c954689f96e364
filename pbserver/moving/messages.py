"""Records as the messages of protos/dump.proto: the same in a file as on the way between machines."""

from pbserver.datastore import catalog, keys
from pbserver.moving.records import Begins, Ends, Record, Stored
from protos import dump_pb2
from protos.entity_pb2 import EntityProto


def of_record(record: Record) -> dump_pb2.Record:
    if isinstance(record, Stored):
        return dump_pb2.Record(entity=record.data)
    row = record.indexes.serialized
    if isinstance(record, Begins):
        app, database, _ = keys.partition_names(record.project)
        return dump_pb2.Record(begins=dump_pb2.Record.Begins(app=app, database=database or None, catalog=row))
    ends = dump_pb2.Record.Ends(catalog=row, sequential=record.sequential, scattered=record.scattered)
    return dump_pb2.Record(ends=ends)


def record(message: dump_pb2.Record, project: bytes) -> Record:
    """`project`: of the record before, which is the one of an entity, too."""
    kind = message.WhichOneof("content")
    if kind == "entity":
        proto = EntityProto.FromString(message.entity)
        return Stored(keys.from_reference(proto.key), proto, message.entity)
    if kind == "begins":
        begins = message.begins
        project = keys.partition(begins.app, begins.database, b"")
        return Begins(project, catalog.parse(begins.catalog if begins.HasField("catalog") else None))
    ends = message.ends
    indexes = catalog.parse(ends.catalog if ends.HasField("catalog") else None)
    return Ends(project, indexes, ends.sequential, ends.scattered)
