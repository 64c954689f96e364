"""The driver's exceptions as the contract's, in one place."""

import cassandra
from cassandra import protocol
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException, ProtocolError
from cassandra.pool import NoConnectionsAvailable

from adapters.errors import Applied, StoreError, TooLarge, Unavailable, Unsupported

#: What no request leaves this process with, or no node does anything for.
NOT_SENT: tuple[type[Exception], ...] = (
    NoHostAvailable,
    NoConnectionsAvailable,
    ConnectionBusy,
    cassandra.UnresolvableContactPoints,
)
DENIED: tuple[type[Exception], ...] = (cassandra.AuthenticationFailed, cassandra.Unauthorized, protocol.BadCredentials)
UNFIT: tuple[type[Exception], ...] = (
    cassandra.InvalidRequest,
    cassandra.UnsupportedOperation,
    protocol.ConfigurationException,
)
#: A plain write that failed so reached no replica. Of a conditional one, a part may be on its way.
TOO_FEW_REPLICAS: tuple[type[Exception], ...] = (cassandra.Unavailable, protocol.IsBootstrappingErrorMessage)
FAILED: tuple[type[Exception], ...] = (
    cassandra.DriverException,
    protocol.RequestExecutionException,
    protocol.ServerError,
    ConnectionException,
    ProtocolError,
    OSError,
)
#: All that `translated` makes a StoreError of; anything else is a bug, and passes.
TRANSLATED = (*NOT_SENT, *DENIED, *UNFIT, *TOO_FEW_REPLICAS, *FAILED)

_TOO_LARGE = ("too large", "exceeds", "longer than maximum")
#: The last is said where two nodes have just created the same table: one of the two is about to be forgotten.
_MISSING = ("unconfigured table", "does not exist", "ID mismatch")


def translated(error: Exception, where: str, *, wrote: bool = False, conditional: bool = False) -> StoreError:
    """What to raise `from error`, one of TRANSLATED. `wrote`: the request was a write, `conditional`: with Paxos."""
    text = described(error)
    if isinstance(error, UNFIT):
        if any(words in text for words in _TOO_LARGE):
            return TooLarge(f"{where}: a key, value or batch is larger than the nodes take ({text})")
        if any(words in text for words in _MISSING):
            return Unavailable(f"{where}: the keyspace or its tables are missing ({text})")
        return Unsupported(f"{where}: the cluster's version or settings do not allow it ({text})")
    if isinstance(error, DENIED):
        return Unavailable(f"{where}: the user, its password or its permissions ({text})")
    if isinstance(error, NOT_SENT):
        return Unavailable(f"{where}: no node can be used: {text}")
    certain = not wrote or (isinstance(error, TOO_FEW_REPLICAS) and not conditional)
    return Unavailable(f"{where}: {text}", Applied.NO if certain else Applied.UNKNOWN)


def described(error: object) -> str:
    """In one line: the driver's text, or each node and what is wrong with it."""
    if isinstance(error, NoHostAvailable) and isinstance(error.errors, dict) and error.errors:
        return "; ".join(f"{node}: {described(cause)}" for node, cause in error.errors.items())
    text = error.summary_msg() if isinstance(error, protocol.ErrorMessage) else str(error)
    return " ".join(f"{type(error).__name__} {text}".split())
