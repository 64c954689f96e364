"""What fails between here and HBase as the contract's errors, in one place."""

from thriftpy2.protocol.cybin.cybin import ProtocolError
from thriftpy2.thrift import TApplicationException, TException

from adapters.errors import Applied, StoreError, Unavailable, Unsupported

#: All that `translated` makes a StoreError of; anything else is a bug, and passes. OSError: the socket, its timeout.
TRANSLATED: tuple[type[Exception], ...] = (TException, ProtocolError, OSError)

_MOST_TEXT = 300  # of the server's: it may be a list of stack traces, one for each of its attempts


def translated(error: Exception, where: str, table: bytes, *, wrote: bool = False) -> StoreError:
    """What to raise `from error`, one of TRANSLATED, for a request that was sent.

    The Thrift server repeats what fails by itself, so of a write that has failed an earlier attempt may be applied.
    """
    applied = Applied.UNKNOWN if wrote else Applied.NO
    text = described(error)
    if isinstance(error, TApplicationException):
        if error.type == TApplicationException.UNKNOWN_METHOD:
            return Unsupported(f"{where}: this is no Thrift2 server of HBase 2 ({text})")
        return Unavailable(f"{where}: the Thrift server failed; its log says why ({text})", applied)
    if getattr(error, "message", None) == table.decode():
        return Unavailable(f"{where}: the table is missing; ensure_tables creates it", applied)
    return Unavailable(f"{where}: {text}", applied)


def described(error: Exception) -> str:
    """In one line."""
    text = " ".join(str(getattr(error, "message", None) or error).split())
    return f"{type(error).__name__} {text[:_MOST_TEXT]}"
