"""The five things a store may raise. Each says whether the write it belongs to was applied.

Driver exceptions are mapped to these in one place per adapter, from tuples of classes, always with `raise ... from`.
"""

from enum import Enum


class Applied(Enum):
    """What may have happened to the write that failed."""

    NO = "no"  #: nothing of it is or will become visible
    UNKNOWN = "unknown"  #: it may be there, or appear later; only reading can tell


class StoreError(Exception):
    """Base of everything a store raises; `applied` tells the caller its next move."""

    def __init__(self, message: str, applied: Applied = Applied.NO) -> None:
        super().__init__(message)
        self.applied = applied

    def restated(self, applied: Applied) -> "StoreError":
        """The same error about a larger or smaller write. Another object: one error may be raised in many threads."""
        return type(self)(str(self), applied)


class Unavailable(StoreError):
    """The store could not be reached or did not answer in time. Reads may be repeated."""


class Conflict(StoreError):
    """An expectation did not hold; nothing of the batch was applied.

    `index` is the position in the batch of the first write or check that failed, `current` the value found there
    (None: the row is absent).
    """

    def __init__(self, message: str, *, index: int, current: bytes | None) -> None:
        super().__init__(message)
        self.index = index
        self.current = current

    def restated(self, applied: Applied) -> StoreError:
        raise AssertionError(f"a conflict means that nothing was applied, not {applied}") from self


class TooLarge(StoreError):
    """A key, value or batch is over a limit the store states in its Capabilities."""


class Unsupported(StoreError):
    """The store cannot do this at all: an option, a capability or an operation it does not claim."""


class Corrupt(StoreError):
    """What the store holds cannot be what was written."""
