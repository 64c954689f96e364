"""The databases that are measured; one entry each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from bench.clusters.work import Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """`sides`: a module of bench.clusters with the sides `Bare` and `Indexed`, both made of a store URL."""

    sides: str
    operations: int  #: measured in one round of a full run
    write_goals: Mapping[
        str, float | None
    ]  #: ways to acknowledge; how many times native (b) a write may take with each
    url: Callable[[str, str], str] = lambda url, way: url  #: of the store for one way, from an entry point's

    def bare(self, url: str) -> Side:
        side: Side = import_module(f"bench.clusters.{self.sides}").Bare(url)
        return side

    def indexed(self, url: str) -> Side:
        side: Side = import_module(f"bench.clusters.{self.sides}").Indexed(url)
        return side


@dataclass(frozen=True, slots=True, kw_only=True)
class Database(Compared):
    """One that is booted."""

    recipe: str
    nodes: int


#: No goal: (b) is calls in the program's own process, and PBServer is another process.
EMBEDDED = Compared(sides="lmdb", operations=1000, write_goals={"applied": None})

DATABASES = {
    "mysql": Database(recipe="mysql", nodes=1, sides="mysql", operations=400, write_goals={"applied": 1.25}),
    "galera": Database(recipe="mysql", nodes=3, sides="mysql", operations=300, write_goals={"applied": 1.25}),
    "cassandra": Database(
        recipe="cassandra",
        nodes=3,
        sides="cassandra",
        operations=60,
        write_goals={"applied": 2.0, "committed": 1.3},
        url=lambda url, way: f"{url}/bench_{way}",
    ),
    "hbase": Database(
        recipe="hbase",
        nodes=1,
        sides="hbase",
        operations=150,
        write_goals={"applied": 2.0, "committed": 1.3},
        url=lambda url, way: f"{url}/bench_{way}",
    ),
}

#: By the name of the adapter, which is the recipe's too.
BY_ADAPTER: Mapping[str, Compared] = {"lmdb": EMBEDDED, **{each.recipe: each for each in DATABASES.values()}}
