"""What lies in an environment's directory beside LMDB's own two files, and what is checked before LMDB opens them.

    size.lock                   held while an environment is opened or its map grows
    write.lock, line.lock       held around every write transaction, and while waiting for it: waiting for LMDB's own
                                lock cannot be given up
    synced.lock, unsynced.lock  held, shared, by every process for as long as it has the environment open that way;
                                either one says that data.mdb was whole once

LMDB maps both of its files, and a page of a map that the disk has no room for kills the process instead of failing a
call. So room is taken before it is touched, and a file that lacks pages is never handed to LMDB.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import flock
from io import FileIO
from pathlib import Path
from typing import Final

from adapters.errors import Corrupt, Unavailable
from adapters.lmdb.pages import missing_pages

MAX_READERS: Final = 1024
_READER_BYTES: Final = 64  # a cache line each; the header of the lock file takes some more
_LOCK_FILE_BYTES: Final = (MAX_READERS + 2) * _READER_BYTES
_HOLDERS: Final = {True: "synced.lock", False: "unsynced.lock"}
_TRY: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
_PAUSE_SECONDS: Final = 0.0002
_SYNC_PAUSE_SECONDS: Final = 0.0004
_LINE_PAUSE_SECONDS: Final = 0.001  # the same for all, or who came last would be next
_RESTORE: Final = "restore it from a backup; nothing was written"
_NO_RESERVING: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


@contextmanager
def size_lock(path: Path) -> Iterator[None]:
    """Openings and growings of all processes, one after another. The kernel frees it when its holder dies."""
    handle = _open(path / "size.lock")
    try:
        flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def data_bytes(path: Path) -> int:
    data = path / "data.mdb"
    return data.stat().st_size if data.exists() else 0


def inspect(path: Path, *, synced: bool, volatile: bool) -> None:
    """Refuses what LMDB must not open, and takes the room of its lock file. The caller holds the size lock.

    Files that another process has open have been looked at by that process, and may be in motion.
    """
    _refuse_other_promise(path, synced=synced)
    if not volatile:
        _refuse_lost_data(path)
    if not _is_held(path / _HOLDERS[synced]):
        _refuse_missing_pages(path)
        _reserve_lock_file(path / "lock.mdb")


def hold(path: Path, *, synced: bool) -> FileIO:
    """Marks the environment as open until the file that it returns is closed. The caller holds the size lock."""
    mark = path / _HOLDERS[synced]
    if synced and not mark.exists():
        _sync(path / "data.mdb")  # a mark that outlived a crash without its data would condemn a new store
    file = _opened(mark)
    flock(file, fcntl.LOCK_SH)
    return file


def forget(path: Path) -> None:
    for name in ("data.mdb", "lock.mdb"):
        (path / name).unlink(missing_ok=True)


def reserve_data(path: Path, needed: int, wanted: int) -> int:
    """Takes disk space for the beginning of the data file: `wanted` bytes, or else `needed`; returns which.

    Raises OSError where there is no room.
    """
    handle = _open(path / "data.mdb")
    try:
        try:
            _reserve(handle, wanted)
        except OSError:
            _reserve(handle, needed)
            return needed
        return wanted
    finally:
        os.close(handle)


class WriteLock:
    """Held by one process at a time; the threads of a process share it, and take turns elsewhere.

    Who finds it taken asks again and again, since nothing can wait for a file lock only until a deadline. Where
    commits are long because they are synced, only the first in line asks, so that a process that writes without a
    pause cannot keep others out. The kernel frees it when its holder dies.
    """

    def __init__(self, path: Path, *, in_turn: bool) -> None:
        self._path = path
        self._file = _opened(path / "write.lock")
        self._line = _opened(path / "line.lock") if in_turn else None

    def acquire(self, deadline: float) -> None:
        if self._line is None:
            return self._take(self._file, deadline, _PAUSE_SECONDS)
        self._take(self._line, deadline, _LINE_PAUSE_SECONDS)
        try:
            self._take(self._file, deadline, _SYNC_PAUSE_SECONDS)
        finally:
            flock(self._line, fcntl.LOCK_UN)

    def release(self) -> None:
        flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Idempotent."""
        self._file.close()
        if self._line is not None:
            self._line.close()

    def _take(self, file: FileIO, deadline: float, pause_seconds: float) -> None:
        while True:
            try:
                return flock(file, _TRY)
            except BlockingIOError:
                pass
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"lmdb {self._path}: the deadline passed while another process was writing; if this lasts, look "
                    "for one that is stopped"
                )
            time.sleep(pause_seconds)


def _reserve(handle: int, size: int) -> None:
    """File systems that cannot reserve are let pass: there a full disk still kills."""
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        if error.errno not in _NO_RESERVING:
            raise


def _refuse_other_promise(path: Path, *, synced: bool) -> None:
    """Between processes that sync and others that do not, the first could not keep their promise."""
    if _is_held(path / _HOLDERS[not synced]):
        theirs, ours = ("none", "sync or group") if synced else ("sync or group", "none")
        raise Unavailable(
            f"lmdb {path}: another process has it open with durability={theirs}, this one wants {ours}: "
            "give all of them the same URL"
        )


def _refuse_lost_data(path: Path) -> None:
    """A directory that held a store and holds no data is an accident, not a new store."""
    traces = [name for name in (*_HOLDERS.values(), "volatile") if (path / name).exists()]
    if traces and not data_bytes(path):
        found = "empty" if (path / "data.mdb").exists() else "missing"
        raise Corrupt(
            f"lmdb {path}: the file is damaged: data.mdb is {found}, but {traces[0]} beside it says that there was a "
            f"store; {_RESTORE}; to begin anew, delete the directory"
        )


def _refuse_missing_pages(path: Path) -> None:
    missing = missing_pages(path / "data.mdb")
    if missing:
        raise Corrupt(
            f"lmdb {path}: the file is damaged: data.mdb has {missing.found} whole pages, its last commit needs "
            f"{missing.expected}; {_RESTORE}"
        )


def _reserve_lock_file(lock: Path) -> None:
    """LMDB leaves it sparse. Only without other users: closing it would drop this process's locks on it."""
    handle = _open(lock)
    try:
        size = os.fstat(handle).st_size
        try:
            _reserve(handle, size or _LOCK_FILE_BYTES)
        except OSError:
            if not size:
                lock.unlink()  # else what there is of it would count as whole
            raise
    finally:
        os.close(handle)


def _is_held(mark: Path) -> bool:
    try:
        handle = os.open(mark, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _sync(file: Path) -> None:
    for place in (file, file.parent):
        handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _open(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)


def _opened(file: Path) -> FileIO:
    return FileIO(_open(file), "r+")
