"""What the server's error numbers mean, and PyMySQL's exceptions as the contract's, in one place.

The server's own text is passed on only where it holds no row: others quote keys.
"""

import pymysql

from adapters.errors import Applied, Corrupt, StoreError, TooLarge, Unavailable, Unsupported

#: The transaction was rolled back, or can be: deadlock or failed certification, lock wait, record changed meanwhile,
#: NDB's temporary errors. Nothing of it is applied, also when it was COMMIT that failed.
ROLLED_BACK = (1213, 1205, 1020, 1297)
#: An expectation did not hold: a number below zero, or a NULL, as codec.py makes them then.
UNMET = (1048, 1690)
#: No answer, or none any more: refused, gone, lost, network, shut down, killed, too many connections, host blocked.
LOST: tuple[int, ...] = (
    0,
    2002,
    2003,
    2005,
    2006,
    2013,
    2014,
    2026,
    2055,
    1040,
    1042,
    1043,
    1053,
    1080,
    1129,
    1130,
    1152,
)
LOST += (1158, 1159, 1160, 1161, 1184, 1203, 1226, 1317, 1927, 1969, 3024, 3032, 3169, 4031)
NOT_READY = (1047,)  # Galera: the node is not, or no longer, part of a primary component
DENIED = (1044, 1045, 1142, 1143, 1227, 1370, 1698, 1820, 1862, 2049, 2059, 2061, 3118, 3159, 3879, 4151)
MISSING = (1008, 1049, 1146, 1176)
READ_ONLY = (1290, 1792, 1836, 3100)
DISK_FULL = (3, 1021, 1026, 1030, 1114, 3019)
TOO_LARGE = (1118, 1153, 1197, 1301, 1406, 3001)
UNFIT = (1071, 1074, 1101, 1193, 1235, 1286, 1478, 1665, 1709)  # the engine or the server's settings do not allow it
DAMAGED = (1033, 1034, 1035, 1194, 1195, 1712, 1813, 1817, 1877, 1932)

#: What makes a node not worth asking for a while.
BAD_NODE = (*LOST, *NOT_READY, *READ_ONLY, *DISK_FULL)
#: A statement that failed so did nothing, even one that commits itself.
REFUSED = (*DENIED, *MISSING, *READ_ONLY, *TOO_LARGE, *UNFIT)

_HINTS = (
    (LOST, "no answer", True),
    (NOT_READY, "the node is not part of the Galera cluster's primary component", True),
    (DENIED, "the user, its password or its permissions", True),
    (MISSING, "the database or its tables are missing", True),
    (READ_ONLY, "the node is read-only", True),
    (DISK_FULL, "the disk is full, or the storage engine failed", True),
    (ROLLED_BACK, "others hold the rows' locks", False),
)
_KINDS: tuple[tuple[tuple[int, ...], type[StoreError], str], ...] = (
    (TOO_LARGE, TooLarge, "a value or a batch is larger than the server takes"),
    (UNFIT, Unsupported, "the server's version, engine or settings do not allow it"),
    (DAMAGED, Corrupt, "a table is damaged"),
)


def number(error: pymysql.MySQLError) -> int:
    """The server's or the driver's number; -1: none, so a misuse of the driver or unknown."""
    first = error.args[0] if error.args else None
    return first if isinstance(first, int) else -1


def cause(code: int | None) -> str:
    """What an error means, in a few words."""
    return next((f"{hint} (error {code})" for codes, hint, _ in _HINTS if code in codes), f"error {code}")


def is_certain(error: pymysql.MySQLError) -> bool:
    """Whether nothing is applied when COMMIT fails so, or a statement that commits itself."""
    return number(error) in (*ROLLED_BACK, *REFUSED)


def translated(error: pymysql.MySQLError, where: str, applied: Applied = Applied.NO) -> StoreError:
    """What to raise `from error`. Re-raises it unchanged when it can only be a bug of ours."""
    code = number(error)
    for codes, kind, hint in _KINDS:
        if code in codes:
            return kind(f"mysql {where}: {hint} (error {code})", applied)
    for codes, hint, may_quote in _HINTS:
        if code in codes:
            text = f": {error.args[-1]}" if may_quote and len(error.args) > 1 and error.args[-1] else ""
            return Unavailable(f"mysql {where}: {hint} (error {code}{text})", applied)
    if isinstance(error, pymysql.err.OperationalError | pymysql.err.InternalError):
        return Unavailable(f"mysql {where}: the server failed with error {code}", applied)
    raise error
