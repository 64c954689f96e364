"""What a store holds, between a gateway and pbdeploy, record by record: nothing lies on the node meanwhile.

On the node, by its own interpreter and over SSH: `python -m controller.hosts.moving dump FILE` writes the stream to its
standard output, `load FILE NAME` reads one; NAME tells it from others, in hexadecimal digits. The store is the one of
FILE, the gateway's settings, so its URL is on no command line. What goes wrong is standard error's last line, and 1.

The stream is gzip, which brings a checksum, of records: each 4 bytes of length, big-endian, and a Record
(protos/dump.proto); length 0 ends it.
"""

import gzip
import os
import struct
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from google.protobuf.message import DecodeError

from adapters.build import open_store
from adapters.contract import OrderedStore
from adapters.errors import StoreError
from pbserver.datastore import projects
from pbserver.datastore.core import Datastore
from pbserver.datastore.errors import DatastoreError
from pbserver.moving import messages
from pbserver.moving.arriving import Arrival, is_unfinished
from pbserver.moving.reading import StoreSource
from pbserver.moving.records import START, CannotMove, Place, Record
from pbserver.settings import load as load_settings
from protos import dump_pb2

#: Of the stream that ended too early, or is none.
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, DecodeError, struct.error)
_LENGTH = struct.Struct(">I")
_LEVEL = 1  # a network is slower, a node has other things to do
_SECONDS = 60.0


def write(stream: BinaryIO, records: Iterable[Record]) -> None:
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=_LEVEL) as packed:
        for record in records:
            data = messages.of_record(record).SerializeToString()
            packed.write(_LENGTH.pack(len(data)) + data)
        packed.write(_LENGTH.pack(0))


class Received:
    """pbserver.moving.records.Source: what `write` writes at the other end. Raises one of BROKEN."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def records(self, after: Place = START) -> Iterator[Record]:
        project = b""
        with gzip.GzipFile(fileobj=self._stream, mode="rb") as packed:
            while length := _LENGTH.unpack(packed.read(_LENGTH.size))[0]:
                record = messages.record(dump_pb2.Record.FromString(packed.read(length)), project)
                project = record.place.project
                if record.place > after:
                    yield record
            packed.read()  # to the checksum


def dump(store: OrderedStore, stream: BinaryIO) -> None:
    """Raises CannotMove for a store of which there is nothing to dump."""
    Datastore(store).prepare(deadline=time.monotonic() + _SECONDS)
    if is_unfinished(store):
        raise CannotMove("the cluster holds an unfinished restore: finish that first, by the same `pbdeploy restore`")
    wanted = projects.projects(store)
    if not wanted:
        raise CannotMove("the cluster holds no app's data yet: nothing was written")
    write(stream, StoreSource(store, wanted).records())


def load(store: OrderedStore, stream: BinaryIO, identity: bytes) -> None:
    """Puts everything into an empty store, or goes on where an earlier run with that identity stood. Raises
    CannotMove, having written nothing, for a store that holds anything else.
    """
    with closing(Arrival(store, identity)) as arrival:
        arrival.take(Received(stream))
        arrival.finish()


def main(what: str, settings: Path, name: str = "") -> None:
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as stream:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever drivers have to say is no part of the stream
        try:
            with closing(open_store(load_settings(settings, {}).store)) as store:
                if what == "dump":
                    dump(store, stream)
                else:
                    load(store, sys.stdin.buffer, bytes.fromhex(name))
        except BROKEN:
            sys.exit("the connection broke off; the same command goes on where this one stood")
        except (CannotMove, DatastoreError, StoreError, OSError, ValueError) as error:
            sys.exit(" ".join(str(error).split()))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
