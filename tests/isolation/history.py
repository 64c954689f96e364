"""A history: what clients asked of a Datastore, when, and what they were told.

The file holds JSON lines, one transaction each, in any order. A plain (non-transactional) call is a transaction of one
call; a plain call on several entity groups is one line per group, since nothing more is promised.

    client   who asked; one client has one transaction under way at a time
    name     what kind of transaction it was, for people
    start    ns of one monotonic clock, before the first call was sent
    end      ns of the same clock, after the last answer had come
    outcome  "ok": acknowledged; "fail": certainly not applied; "unknown": applied or not, now or later
    error    what the server answered instead of a result, "" if nothing
    calls    how many calls were sent
    reads    [{object, seen, value, version}] answers in their order; reads never show the transaction's own writes
    writes   [{object, id, how, value, version}]; of several writes to one object the last counts

The state of an object is the list of the ids of its writes (`seen`; [] when it does not exist), so a read tells which
write made what it saw. `how`: "append" adds the id to the list the same transaction read; "put" replaces the list by
[id] without a look; "delete" removes the object. An object has appends, or else puts and deletes, never both. Ids are
unique in the whole history. `value` is any number stored beside the list, `version` what the server calls the write's
version (null where it did not say): puts and deletes need it, see versions.py.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple


class Outcome(StrEnum):
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class How(StrEnum):
    APPEND = "append"
    PUT = "put"
    DELETE = "delete"


class Read(NamedTuple):
    object: str
    seen: tuple[int, ...]
    value: int | None = None
    version: int | None = None


class Write(NamedTuple):
    object: str
    id: int
    how: How = How.APPEND
    value: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One line of a history; the fields are described above."""

    client: int
    name: str
    start: int
    end: int
    outcome: Outcome
    error: str = ""
    calls: int = 1
    reads: tuple[Read, ...] = ()
    writes: tuple[Write, ...] = ()

    def last_writes(self) -> list[Write]:
        """The writes that count: the last one to each object."""
        return [*{write.object: write for write in self.writes}.values()]


History = list[Transaction]


def save(history: Iterable[Transaction], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for transaction in history:
            json.dump(_to_json(transaction), file, separators=(",", ":"))
            file.write("\n")


def load(path: Path) -> History:
    with path.open(encoding="utf-8") as file:
        return [_from_json(json.loads(line)) for line in file]


def _to_json(transaction: Transaction) -> dict[str, Any]:
    fields = asdict(transaction)
    fields["reads"] = [read._asdict() for read in transaction.reads]
    fields["writes"] = [write._asdict() for write in transaction.writes]
    return fields


def _from_json(fields: dict[str, Any]) -> Transaction:
    reads = tuple(Read(**each | {"seen": tuple(each["seen"])}) for each in fields.pop("reads"))
    writes = tuple(Write(**each | {"how": How(each["how"])}) for each in fields.pop("writes"))
    outcome = Outcome(fields.pop("outcome"))
    return Transaction(**fields, outcome=outcome, reads=reads, writes=writes)
