"""Which record is meant next: the request distributions of the core workloads of YCSB (Cooper et al., 2010).

The zipfian one is the method of Gray et al., "Quickly generating billion-record synthetic databases" (1994): one
uniform number becomes a rank, without a table of the ranks' probabilities.
"""

import random
from functools import cache

THETA = 0.99
_SCRAMBLED_FROM = 10**10  # ranks that are spread over the records, whatever their number, as YCSB has it
_EXACTLY = 10_000
_FNV_BASIS, _FNV_PRIME, _MASK = 0xCBF29CE484222325, 1099511628211, (1 << 64) - 1


def scattered(number: int) -> int:
    """A number that says nothing of the neighbours of `number`: FNV-1a of its eight bytes, below 2**63."""
    found = _FNV_BASIS
    for _ in range(8):
        found = ((found ^ (number & 0xFF)) * _FNV_PRIME) & _MASK
        number >>= 8
    return found if found < 1 << 63 else (1 << 64) - found


@cache
def zeta(count: int, theta: float = THETA) -> float:
    """The sum of rank ** -theta over so many ranks. Long ones by Euler and Maclaurin's formula, good to 1e-9."""
    exact = min(count, _EXACTLY)
    total: float = sum(rank**-theta for rank in range(1, exact + 1))
    if count > exact:
        integral = (count ** (1 - theta) - exact ** (1 - theta)) / (1 - theta)
        total += integral + (count**-theta - exact**-theta) / 2 + theta * (exact ** (-theta - 1)) / 12
    return total


class Zipfian:
    """Ranks from 0, each in proportion to (rank + 1) ** -theta; their number may grow.

    YCSB's "latest" is this with a record's age as its rank, 0 being the newest.
    """

    def __init__(self, count: int, randomly: random.Random, theta: float = THETA) -> None:
        self._count = count
        self._random = randomly
        self._theta = theta
        self._first_two = zeta(2, theta)
        self._zeta = zeta(count, theta)
        self._settle()

    def draw(self) -> int:
        uniform = self._random.random()
        place = uniform * self._zeta
        if place < 1:
            return 0
        if place < self._first_two:
            return 1
        rank = int(self._count * (self._eta * uniform - self._eta + 1) ** (1 / (1 - self._theta)))
        return min(rank, self._count - 1)  # rounding may reach the end

    def grow(self) -> None:
        """There is one more."""
        self._count += 1
        self._zeta += self._count**-self._theta
        self._settle()

    def _settle(self) -> None:
        tail = 1 - self._first_two / self._zeta if self._count > 2 else 1.0  # ranks beyond the second are not drawn
        self._eta = (1 - (2 / self._count) ** (1 - self._theta)) / tail


class Scrambled:
    """Records from 0 to `count`: zipfian in popularity, with the popular ones anywhere among them."""

    def __init__(self, count: int, randomly: random.Random) -> None:
        self._count = count
        self._ranks = Zipfian(_SCRAMBLED_FROM, randomly)

    def draw(self) -> int:
        return scattered(self._ranks.draw()) % self._count
