"""LMDB's exceptions as the contract's, in one place."""

import errno
import os
from pathlib import Path

import lmdb

from adapters.errors import Applied, Corrupt, StoreError, TooLarge, Unavailable

CORRUPT = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
)
TOO_LARGE = (lmdb.BadValsizeError, lmdb.TxnFullError)
#: These say that this package misuses LMDB, so they pass through unchanged.
BUGS = (lmdb.BadTxnError, lmdb.BadDbiError, lmdb.BadRslotError, lmdb.CursorFullError, lmdb.KeyExistsError)

_NO_ROOM_BYTES = 1 << 20
_HINTS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "this user may not write there",
    errno.EPERM: "this user may not write there",
    errno.ENOMEM: "the map does not fit into the address space",
    errno.EEXIST: "it is a file; a directory is needed",
    errno.ENOTDIR: "it lies below a file",
    errno.EIO: "the disk reports an input/output error",
}


def translated(error: lmdb.Error, path: Path, applied: Applied = Applied.NO) -> StoreError:
    """What to raise `from error`. Re-raises it unchanged when it can only be a bug of ours."""
    if isinstance(error, BUGS):
        raise error
    if isinstance(error, CORRUPT):
        return Corrupt(f"lmdb {path}: the file is damaged or not LMDB's: {error}", applied)
    if isinstance(error, TOO_LARGE):
        return TooLarge(f"lmdb {path}: {error}", applied)
    return Unavailable(f"lmdb {path}: {_hint(_code(error), path)}: {error}", applied)


def os_translated(error: OSError, path: Path) -> StoreError:
    return Unavailable(f"lmdb {path}: {_HINTS.get(error.errno or 0, 'cannot be opened')}: {error.strerror}")


def _hint(code: int, path: Path) -> str:
    hint = _HINTS.get(code, "no answer")
    return f"the disk is full, or {hint}" if code == errno.EIO and _is_full(path) else hint


def _is_full(path: Path) -> bool:
    """LMDB calls a write that the disk had room for only in part an input/output error."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _NO_ROOM_BYTES


def _code(error: lmdb.Error) -> int:
    if isinstance(error, lmdb.DiskError):
        return errno.ENOSPC
    if isinstance(error, lmdb.MemoryError):
        return errno.ENOMEM
    if isinstance(error, lmdb.ReadonlyError | lmdb.LockError):
        return errno.EACCES
    return error.code
