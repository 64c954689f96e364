"""One LMDB environment: opening it, growing its map, refusing its use in a forked child."""

import fcntl
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lmdb

from adapters.errors import Corrupt, Unavailable, Unsupported
from adapters.lmdb.errors import os_translated, translated
from adapters.lmdb.gate import Gate

MAX_READERS = 1024
CLOSE_SECONDS = 10.0
_MIB = 1 << 20
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an environment is opened; the same in every process that shares it."""

    map_mib: int
    synced: bool  #: False: MDB_NOSYNC and MDB_WRITEMAP, which outlive the process but not the machine


class Connection:
    """An open environment. `begin` is LMDB's own; every use stands between the steps that Gate describes."""

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self.options = options
        self.gate = Gate()
        self._pid = os.getpid()
        try:
            path.mkdir(parents=True, exist_ok=True)
            with self._file_lock():
                self.env = self._open()
            self.env.reader_check()
        except OSError as error:
            raise os_translated(error, path) from error
        except lmdb.Error as error:
            raise translated(error, path) from error
        self.begin = self.env.begin
        self.database = self.env.open_db(None)
        _OPEN.add(self)

    def recover(self, error: lmdb.Error, deadline: float) -> None:
        """After a failed read: makes the next attempt succeed, or raises what the failure means."""
        if isinstance(error, lmdb.MapResizedError):
            self.grow(deadline)
        elif isinstance(error, lmdb.ReadersFullError) and self.env.reader_check():
            return  # processes that were killed had left their places taken
        else:
            raise translated(error, self.path) from error

    def grow(self, deadline: float) -> None:
        """Doubles the map, or adopts the size another process gave it. The caller holds no transaction."""
        with self.gate.alone(deadline):
            try:
                with self._file_lock():
                    self.env.set_mapsize(max(2 * self.env.info()["map_size"], self._file_bytes()))
            except lmdb.Error as error:
                raise translated(error, self.path) from error
            except OSError as error:
                raise os_translated(error, self.path) from error

    def close(self) -> None:
        """Waits a while for open transactions, then invalidates what is left of them."""
        if os.getpid() != self._pid:
            return  # the parent's: closing it here would free the parent's reader slots
        try:
            with self.gate.alone(time.monotonic() + CLOSE_SECONDS):
                self.gate.refuse(Unavailable(f"lmdb {self.path}: the store is closed"))
        except Unavailable as refusal:
            self.gate.refuse(refusal)
        self.env.close()

    def refuse_after_fork(self) -> None:
        self.gate.refuse(
            Unsupported(f"lmdb {self.path}: opened by process {self._pid}; a forked process must open its own store")
        )

    def _open(self) -> lmdb.Environment:
        return lmdb.open(
            str(self.path),
            map_size=max(self.options.map_mib * _MIB, self._file_bytes()),
            sync=self.options.synced,
            writemap=not self.options.synced,
            metasync=True,
            max_readers=MAX_READERS,
            max_spare_txns=1,
            mode=0o640,
        )

    def _file_bytes(self) -> int:
        """With MDB_WRITEMAP LMDB cuts the file to the map it is given; a smaller one would rob other processes."""
        data = self.path / "data.mdb"
        return data.stat().st_size if data.exists() else 0

    @contextmanager
    def _file_lock(self) -> Iterator[None]:
        """Openings and growings of all processes, one after another. The kernel frees it when its holder dies."""
        handle = os.open(self.path / "size.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def open_volatile(path: Path, options: Options) -> Connection:
    """The environment whose rows a crash of the machine may lose: emptied when it stems from before the last boot.

    Unsynced pages that the crash left half written would make LMDB follow wild page numbers, so nothing is read.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        _forget_older_boot(path)
    except OSError as error:
        raise os_translated(error, path) from error
    try:
        return Connection(path, options)
    except Corrupt:
        _forget(path)
        return Connection(path, options)


def _forget_older_boot(path: Path) -> None:
    current = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "unknown"
    handle = os.open(path / "boot_id", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.pread(handle, 64, 0).decode(errors="replace").strip() != current:
            _forget(path)
            os.ftruncate(handle, 0)
            os.pwrite(handle, current.encode(), 0)
    finally:
        os.close(handle)


def _forget(path: Path) -> None:
    for name in ("data.mdb", "lock.mdb"):
        (path / name).unlink(missing_ok=True)


_OPEN: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _refuse_in_child() -> None:
    for connection in list(_OPEN):
        connection.refuse_after_fork()


os.register_at_fork(after_in_child=_refuse_in_child)
