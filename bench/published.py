"""Figures that others have published, each with where it is from: all that results are compared with, in one place."""

from dataclasses import dataclass
from typing import NamedTuple


class Seconds(NamedTuple):
    """Lowest and highest mean that was published."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Mean seconds of an operation as a web application saw it."""

    name: str
    seconds: dict[str, Seconds]


APPSCALE_SOURCE = (
    "Bunch et al., An Evaluation of Distributed Datastores Using the AppScale Cloud Platform, IEEE CLOUD 2010: "
    "sixteen nodes, every database, light to heavy load (heavy: nine threads)"
)
#: `query` is of 1,000 items; AppScale's from its cache.
APPSCALE = System(
    name="AppScale, 16 nodes",
    seconds={
        "put": Seconds(0.19, 0.40),
        "get": Seconds(0.14, 0.14),
        "delete": Seconds(0.14, 0.18),
        "query": Seconds(0.26, 0.26),
        "no-op": Seconds(0.14, 0.14),
    },
)
APP_ENGINE = System(
    name="Google App Engine, 2010",
    seconds={
        "put": Seconds(0.28, 0.28),
        "get": Seconds(0.24, 0.24),
        "delete": Seconds(0.28, 0.28),
        "query": Seconds(2.62, 2.62),
        "no-op": Seconds(0.18, 0.18),
    },
)

MIDDLEWARE_SOURCE = (
    "Rafique et al., On the Performance Impact of Data Access Middleware for NoSQL Data Stores, IEEE Transactions on "
    "Cloud Computing 6(3), 2018: one node"
)
#: Percent that data-access middleware adds to the native driver on one bare row.
MIDDLEWARE = {
    "insert": {"Kundera": 57, "Playorm": 62, "Spring Data": 64},
    "read": {"Kundera": 16, "Playorm": 10, "Spring Data": 36},
    "update": {"Kundera": 59, "Playorm": 65, "Spring Data": 66},
    "delete": {"Kundera": 117, "Playorm": 78, "Spring Data": 178},
}
