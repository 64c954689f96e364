"""One LMDB environment: opening it, growing its map, taking disk space for it, refusing its use in a forked child."""

import fcntl
import os
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

import lmdb

from adapters.errors import Applied, Corrupt, StoreError, Unavailable, Unsupported
from adapters.lmdb import files
from adapters.lmdb.errors import os_translated, translated
from adapters.lmdb.gate import Gate
from adapters.lmdb.pages import last_page

CLOSE_SECONDS = 10.0
_MIB = 1 << 20
_RESERVED_BYTES = 2 * _MIB  # taken at once, so that few commits ask the file system
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an environment is opened; the same in every process that shares it."""

    map_mib: int
    synced: bool  #: False: MDB_NOSYNC and MDB_WRITEMAP, which outlive the process but not the machine
    volatile: bool = False  #: data that is missing is no loss


class Connection:
    """An open environment. `begin` is LMDB's own; every use stands between the steps that Gate describes."""

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self.options = options
        self.gate = Gate()
        self._pid = os.getpid()
        self._data: int | None = None
        self._reserved = 0  # bytes of data.mdb, from its beginning, that are known to have their place on the disk
        try:
            path.mkdir(parents=True, exist_ok=True)
            with files.size_lock(path):
                self.env = self._open()
            try:
                self.env.reader_check()
                self.database = self.env.open_db(None)
            except BaseException:
                self._release()
                raise
        except OSError as error:
            raise os_translated(error, path) from error
        except lmdb.Error as error:
            raise translated(error, path) from error
        self.begin = self.env.begin
        self._page_bytes = self.env.stat()["psize"]
        self._map_bytes = self.env.info()["map_size"]
        self._data = os.open(path / "data.mdb", os.O_RDONLY | os.O_CLOEXEC)
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
                with files.size_lock(self.path):
                    self.env.set_mapsize(max(2 * self.env.info()["map_size"], files.data_bytes(self.path)))
                    self._map_bytes = self.env.info()["map_size"]
            except lmdb.Error as error:
                raise translated(error, self.path) from error
            except OSError as error:
                raise os_translated(error, self.path) from error

    def reserve(self, pages: int) -> None:
        """Inside a write transaction that may touch `pages` pages: takes their space, or raises Unavailable.

        Only a writable map needs it: elsewhere LMDB writes to the file, and a full disk is an error of the commit.
        """
        if self.options.synced:
            return
        assert self._data is not None
        map_bytes = self._map_bytes
        needed = min((last_page(self._data, self._page_bytes) + 1 + pages) * self._page_bytes, map_bytes)
        if needed <= self._reserved:
            return
        try:
            self._reserved = files.reserve_data(self.path, needed, min(needed + _RESERVED_BYTES, map_bytes))
        except OSError as error:
            raise os_translated(error, self.path) from error

    def failed(self, error: lmdb.Error, commit: int) -> StoreError:
        """What the failure of the commit of this number means. LMDB writes the meta page that shows it last."""
        try:
            applied = Applied.UNKNOWN if self.begin().id() >= commit else Applied.NO
        except lmdb.Error:
            applied = Applied.UNKNOWN  # the meta page itself failed, after which LMDB begins nothing any more
        return translated(error, self.path, applied)

    def close(self) -> None:
        """Waits a while for open transactions, then invalidates what is left of them."""
        if os.getpid() != self._pid:
            return  # the parent's: closing it here would free the parent's reader slots
        try:
            with self.gate.alone(time.monotonic() + CLOSE_SECONDS):
                self.gate.refuse(Unavailable(f"lmdb {self.path}: the store is closed"))
        except Unavailable as refusal:
            self.gate.refuse(refusal)
        self._release()

    def refuse_after_fork(self) -> None:
        self.gate.refuse(
            Unsupported(f"lmdb {self.path}: opened by process {self._pid}; a forked process must open its own store")
        )

    def _open(self) -> lmdb.Environment:
        """The caller holds the size lock."""
        new = not files.data_bytes(self.path)
        files.inspect(self.path, synced=self.options.synced, volatile=self.options.volatile)
        try:
            env = self._open_lmdb()
        except BaseException:
            if new:
                files.forget(self.path)  # half of a file would be refused as damaged when there is room again
            raise
        try:
            self.writers = files.WriteLock(self.path, in_turn=self.options.synced)
            self._holding = files.hold(self.path, synced=self.options.synced)
        except BaseException:
            env.close()
            raise
        return env

    def _release(self) -> None:
        self.env.close()
        if self._data is not None:
            os.close(self._data)
            self._data = None
        self.writers.close()
        self._holding.close()

    def _open_lmdb(self) -> lmdb.Environment:
        return lmdb.open(
            str(self.path),
            # with MDB_WRITEMAP LMDB cuts the file to the map it is given; a smaller one would rob other processes
            map_size=max(self.options.map_mib * _MIB, files.data_bytes(self.path)),
            sync=self.options.synced,
            writemap=not self.options.synced,
            metasync=True,
            max_readers=files.MAX_READERS,
            max_spare_txns=1,
            mode=0o640,
        )


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
        files.forget(path)
        return Connection(path, options)


def _forget_older_boot(path: Path) -> None:
    current = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "unknown"
    handle = os.open(path / "boot_id", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.pread(handle, 64, 0).decode(errors="replace").strip() != current:
            files.forget(path)
            os.ftruncate(handle, 0)
            os.pwrite(handle, current.encode(), 0)
    finally:
        os.close(handle)


_OPEN: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _refuse_in_child() -> None:
    for connection in list(_OPEN):
        connection.refuse_after_fork()


os.register_at_fork(after_in_child=_refuse_in_child)
