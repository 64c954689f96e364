"""One recipe per database, all with the same parts: see controller/recipe.py."""

from importlib import import_module
from typing import cast

from controller.recipe import ClusterError, Recipe

NAMES = ("cassandra", "hbase", "mongodb", "mysql", "zookeeper")


def recipe(name: str) -> Recipe:
    """The recipe called `name`. Raises ClusterError, naming those there are."""
    if name not in NAMES:
        raise ClusterError(f"unknown database {name!r}; known databases: {', '.join(NAMES)}")
    return cast(Recipe, import_module(f"controller.databases.{name}"))
