"""Into a file and back.

    magic    8 bytes  0x89 "PBDUMP" 0x0a
    version  1 byte   1
    coding   1 byte   0: payloads as they are; 1: each of them a gzip stream
    blocks            4 bytes  length of the payload, above 0
                      4 bytes  CRC-32 of the payload as it stands in the file
                      payload  records: a varint length, then a Record (protos/dump.proto); a record is never divided
    end      4 bytes  0
    trailer           a Trailer (protos/dump.proto)
    footer   4 bytes  CRC-32 of the trailer
             4 bytes  length of the trailer
             8 bytes  "PBDUMPED"

Numbers are big-endian. The trailer's SHA-256 is that of all bytes before it. A project's records are Begins, its
entities in the order of their keys, Ends; projects follow each other in the order of their names as they are encoded.
No time, version or place is in it: two dumps of the same data are the same bytes, with the same zlib.
"""

import gzip
import hashlib
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO

from google.protobuf.message import DecodeError

from pbserver.datastore.encoding import read_varint, varint
from pbserver.datastore.errors import BadRequest
from pbserver.moving import messages
from pbserver.moving.records import START, Begins, CannotMove, Place, Record, Stored
from protos import dump_pb2

_MAGIC = b"\x89PBDUMP\n"
_VERSION = 1
_PLAIN, _GZIP = 0, 1
_HEADER = struct.Struct(">8sBB")
_LENGTH = struct.Struct(">I")
_BLOCK = struct.Struct(">II")
_FOOTER = struct.Struct(">II8s")
_END = b"PBDUMPED"
_BLOCK_BYTES = 1 << 20
_MOST_BLOCK_BYTES = 16 << 20  # a block may pass _BLOCK_BYTES by one record
_READ_BYTES = 1 << 20
_UNREADABLE = (DecodeError, BadRequest, ValueError, IndexError, struct.error, EOFError, gzip.BadGzipFile, zlib.error)


def write(path: Path, records: Iterable[Record], *, packed: bool = True) -> dump_pb2.Trailer:
    """A new file, only its owner's to read. It stands under another name until it is complete and on disk.

    Raises CannotMove when there is one already or it cannot be written; then nothing is left.
    """
    if path.exists() or path.is_symlink():
        raise CannotMove(f"{path} is there already: nothing was touched; remove it or name another file")
    try:
        trailer = _write_renamed(path, records, packed=packed)
        _sync_directory(path.parent)
    except OSError as error:
        raise CannotMove(f"cannot write {path}: {error.strerror or error}") from error
    return trailer


def _write_renamed(path: Path, records: Iterable[Record], *, packed: bool) -> dump_pb2.Trailer:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".unfinished", dir=path.parent)
    unfinished = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            trailer = _write(file, records, packed=packed)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    return trailer


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write(file: BinaryIO, records: Iterable[Record], *, packed: bool) -> dump_pb2.Trailer:
    trailer = dump_pb2.Trailer(projects=0, entities=0)
    sha256 = hashlib.sha256()

    def put(data: bytes) -> None:
        sha256.update(data)
        file.write(data)

    put(_HEADER.pack(_MAGIC, _VERSION, _GZIP if packed else _PLAIN))
    for block in _blocks(records, trailer):
        payload = gzip.compress(block, mtime=0) if packed else block
        put(_BLOCK.pack(len(payload), zlib.crc32(payload)) + payload)
    put(_LENGTH.pack(0))
    trailer.sha256 = sha256.digest()
    end = trailer.SerializeToString()
    file.write(end + _FOOTER.pack(zlib.crc32(end), len(end), _END))
    return trailer


def _blocks(records: Iterable[Record], trailer: dump_pb2.Trailer) -> Iterator[bytes]:
    """Records put together, and counted."""
    block: list[bytes] = []
    size = 0
    for record in records:
        trailer.projects += isinstance(record, Begins)
        trailer.entities += isinstance(record, Stored)
        data = messages.of_record(record).SerializeToString()
        block += (varint(len(data)), data)
        size += len(data)
        if size >= _BLOCK_BYTES:
            yield b"".join(block)
            block, size = [], 0
    if block:
        yield b"".join(block)


class DumpFile:
    """pbserver.moving.records.Source: a file that was found complete and undamaged when it was opened."""

    def __init__(self, path: Path) -> None:
        """Reads all of it once. Raises CannotMove saying what is wrong with it."""
        self._path = path
        if not path.is_file():
            what = "is no file: a dump is checked to its end before it is loaded" if path.exists() else "does not exist"
            raise CannotMove(f"{path} {what}")
        with path.open("rb") as file:
            self._coding = self._check_header(file)
            self.trailer, self._end = self._find_trailer(file)
            self._check_sum(file)

    def records(self, after: Place = START) -> Iterator[Record]:
        last, entities = START, 0
        try:
            for record in self._all():
                if record.place <= last:
                    raise self._damaged("its records are not in order")
                last = record.place
                entities += isinstance(record, Stored)
                if last > after:
                    yield record
        except _UNREADABLE as error:
            raise self._damaged(f"behind {entities} entities it cannot be read ({error})") from error
        if entities != self.trailer.entities:
            raise self._damaged(f"it has {entities} entities and should have {self.trailer.entities}")

    def _all(self) -> Iterator[Record]:
        project = b""
        for payload in self._payloads():
            for record in _records(gzip.decompress(payload) if self._coding == _GZIP else payload, project):
                project = record.place.project
                yield record

    def _damaged(self, why: str) -> CannotMove:
        return CannotMove(f"{self._path} is damaged: {why}; take another copy of it")

    def _check_header(self, file: BinaryIO) -> int:
        start = file.read(_HEADER.size)
        magic, version, coding = _HEADER.unpack(start) if len(start) == _HEADER.size else (b"", 0, 0)
        if magic != _MAGIC:
            raise CannotMove(f"{self._path} is no dump of pbserver")
        if version != _VERSION or coding not in (_PLAIN, _GZIP):
            raise CannotMove(
                f"{self._path} is a dump of version {version} and coding {coding}, this pbserver reads version "
                f"{_VERSION}; use the pbserver that wrote it"
            )
        return int(coding)

    def _find_trailer(self, file: BinaryIO) -> tuple[dump_pb2.Trailer, int]:
        """The trailer, and where it begins."""
        size = file.seek(0, os.SEEK_END)
        at = max(0, size - _FOOTER.size)
        crc, length, end = _FOOTER.unpack(_read(file, at, _FOOTER.size) or bytes(_FOOTER.size))
        if end != _END or at < length + _HEADER.size + _LENGTH.size:
            raise CannotMove(f"{self._path} ends too early: its trailer is missing; take another copy of it")
        data = _read(file, at - length, length)
        if zlib.crc32(data) != crc:
            raise self._damaged("its trailer does not have the CRC that it should have")
        try:
            return dump_pb2.Trailer.FromString(data), at - length
        except DecodeError as error:
            raise self._damaged("its trailer cannot be read") from error

    def _check_sum(self, file: BinaryIO) -> None:
        sha256 = hashlib.sha256()
        file.seek(0)
        left = self._end
        while left and (piece := file.read(min(left, _READ_BYTES))):
            sha256.update(piece)
            left -= len(piece)
        if sha256.digest() != self.trailer.sha256:
            raise self._damaged("it does not have the SHA-256 that its trailer says")

    def _payloads(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            file.seek(_HEADER.size)
            while length := _LENGTH.unpack(file.read(_LENGTH.size))[0]:
                (crc,) = _LENGTH.unpack(file.read(_LENGTH.size))
                payload = file.read(min(length, _MOST_BLOCK_BYTES))
                if zlib.crc32(payload) != crc:
                    raise self._damaged("a block does not have the CRC that it should have")
                yield payload


def _read(file: IO[bytes], at: int, size: int) -> bytes:
    file.seek(at)
    data = file.read(size)
    return data if len(data) == size else b""


def _records(data: bytes, project: bytes) -> Iterator[Record]:
    """The records of a block that begins inside a project."""
    at = 0
    while at < len(data):
        size, at = read_varint(data, at)
        record = messages.record(dump_pb2.Record.FromString(data[at : at + size]), project)
        project = record.place.project
        yield record
        at += size
