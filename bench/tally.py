"""What a load generator counts: latencies in histograms, errors by what they were, and both second by second.

The histogram is our own: the one on the package index that is kept up (hdrhistogram) has no wheels for Linux on ARM, so
there it needs a compiler, it brings setuptools along at run time, and it is not typed. What we need of it is this page.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self, TypeVar

_UNIT = 1e-7  # seconds; what is counted is a whole number of them
_BITS = 10  # of a value's leading bits tell buckets apart: a bucket is at most a thousandth of its values wide
_COMPACT_BITS = 4

Key = TypeVar("Key", str, int)


class Histogram:
    """Seconds, in buckets whose width grows with the value: exact below 0.2 ms, to a thousandth above."""

    __slots__ = ("count", "counts", "most", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}  #: by bucket
        self.count = 0
        self.total = 0.0
        self.most = 0.0

    def record(self, seconds: float) -> None:
        """Not below 0."""
        index = _bucket(int(seconds / _UNIT), _BITS)
        self.counts[index] = self.counts.get(index, 0) + 1
        self.count += 1
        self.total += seconds
        self.most = max(self.most, seconds)

    def add(self, other: "Histogram") -> None:
        for index, count in other.counts.items():
            self.counts[index] = self.counts.get(index, 0) + count
        self.count += other.count
        self.total += other.total
        self.most = max(self.most, other.most)

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Self:
        made = cls()
        for each in seconds:
            made.record(each)
        return made

    @property
    def mean(self) -> float:
        """In seconds; 0 if nothing was recorded."""
        return self.total / self.count if self.count else 0.0

    def at(self, share: float) -> float:
        """The seconds that `share` of the values do not pass; 0 if nothing was recorded."""
        wanted = min(self.count, int(share * self.count) + 1)
        seen = 0
        for index in sorted(self.counts):
            seen += self.counts[index]
            if seen >= wanted:
                return min(self.most, _highest(index, _BITS) * _UNIT)
        return 0.0

    def milliseconds(self) -> dict[str, float]:
        """The percentiles that results give."""
        shares = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
        return {name: round(self.at(share) * 1e3, 3) for name, share in shares.items()}

    def compact(self) -> list[list[float]]:
        """`[highest ms, count]` of buckets that are not empty, upwards; each at most a sixteenth of its values wide."""
        coarse: Counter[int] = Counter()
        for index, count in self.counts.items():
            coarse[_bucket(_highest(index, _BITS), _COMPACT_BITS)] += count
        return [[round(_highest(index, _COMPACT_BITS) * _UNIT * 1e3, 4), coarse[index]] for index in sorted(coarse)]


def _bucket(value: int, bits: int) -> int:
    """Values of up to bits + 1 bits have a bucket each; of longer ones, only so many leading bits count."""
    shift = value.bit_length() - bits - 1
    return value if shift <= 0 else (shift << bits) + (value >> shift)


def _highest(index: int, bits: int) -> int:
    """The highest value in the bucket."""
    shift = (index >> bits) - 1
    if shift <= 0:
        return index
    return ((index - (shift << bits) + 1) << shift) - 1


@dataclass(slots=True)
class Tally:
    """Of one kind of operation. `errors`: those that ended otherwise, by what was said; their time counts nowhere."""

    latencies: Histogram = field(default_factory=Histogram)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        return self.errors.total()

    def add(self, other: "Tally") -> None:
        self.latencies.add(other.latencies)
        self.errors.update(other.errors)


class Tallies(dict[Key, Tally]):
    """By the operation's name, or by the second."""

    def of(self, name: Key) -> Tally:
        found = self.get(name)
        if found is None:
            found = self[name] = Tally()
        return found

    def add(self, other: "Tallies[Key]") -> None:
        for name, tally in other.items():
            self.of(name).add(tally)

    def together(self) -> Tally:
        every = Tally()
        for tally in self.values():
            every.add(tally)
        return every
