"""The driver's exceptions as the contract's, in one place.

The server's own text is passed on only where it holds no row: a duplicate key is quoted, and so is all that a bulk
write was to do.
"""

import re
from typing import Any

from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    NotPrimaryError,
    OperationFailure,
    ProtocolError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
)

from adapters.errors import Applied, StoreError, TooLarge, Unavailable, Unsupported

#: No request has left this process.
NOT_SENT: tuple[type[Exception], ...] = (ServerSelectionTimeoutError, WaitQueueTimeoutError, ConfigurationError)
#: All that `translated` makes a StoreError of; anything else is a bug, and passes.
TRANSLATED = (
    ConnectionFailure,
    OperationFailure,
    ConfigurationError,
    ProtocolError,
    DocumentTooLarge,
)

#: The server's numbers: it was not asked for anything it did.
DENIED = (11, 13, 18, 334, 8000)  # user, permissions, password, mechanism
NOT_PRIMARY = (10058, 10107, 13435, 13436)
TOO_LARGE = (10334, 17280, 17419, 17420)
UNFIT = (2, 9, 14, 20, 59, 72, 73, 115, 148, 238)  # an option or command that this server does not have
DUPLICATE = 11000
REFUSED = (*DENIED, *NOT_PRIMARY, *TOO_LARGE, *UNFIT)

#: The driver's own settings, and its view of the cluster, which stand behind the cause.
_SETTINGS = re.compile(r" \(configured timeouts: [^)]*\)|, Timeout: .*", re.DOTALL)
_LONGEST_TEXT = 300


def translated(error: Exception, where: str, *, wrote: bool = False) -> StoreError:
    """What to raise `from error`, one of TRANSLATED. `wrote`: it may have been a write that failed."""
    number, text = _said(error)
    certain = (
        not wrote
        or isinstance(error, NOT_SENT)
        or isinstance(error.__cause__, ConnectionRefusedError)
        or (number in REFUSED and not isinstance(error, BulkWriteError))
    )
    applied = Applied.NO if certain else Applied.UNKNOWN
    if isinstance(error, DocumentTooLarge) or number in TOO_LARGE:
        return TooLarge(f"{where}: a row is larger than the server takes ({text})", applied)
    if number in DENIED:
        return Unavailable(f"{where}: the user, its password or its permissions ({text})", applied)
    if isinstance(error, NotPrimaryError) or number in NOT_PRIMARY:
        return Unavailable(f"{where}: the node is not the primary, or no longer ({text})", applied)
    if isinstance(error, ConfigurationError) or number in UNFIT:
        return Unsupported(f"{where}: the server's version or settings do not allow it ({text})", applied)
    return Unavailable(f"{where}: {text}", applied)


def _said(error: Exception) -> tuple[int | None, str]:
    """The server's number and words, of the first failure if there are several, in one line."""
    details: Any = getattr(error, "details", None) or {}
    failures = [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]
    first: Any = failures[0] if failures else details
    number = first.get("code", getattr(error, "code", None))
    text = "another client wrote the row meanwhile" if number == DUPLICATE else first.get("errmsg", str(error))
    words = " ".join(f"{type(error).__name__} {_SETTINGS.sub('', text)}".split())
    return number, words[:_LONGEST_TEXT]
