"""From a store URL to a store PBServer can work with: adapter, then the layers its capabilities call for."""

from collections.abc import Callable

from adapters import registry
from adapters.contract import Atomicity, Capabilities, Consistency, OrderedStore, PointStore
from adapters.errors import Unsupported
from adapters.layers.checked import CheckedStore
from adapters.layers.longkeys import LongKeysStore
from adapters.layers.longvalues import LongValuesStore
from adapters.layers.measured import MeasuredPoints, MeasuredStore, Recorder
from adapters.layers.ordered import TreeStore, lifted
from adapters.layers.retried import RetriedPoints, RetriedStore
from adapters.layers.versioned import VersionedStore
from adapters.url import parse_url

#: An entity of 1 MiB with its frame and its group's head beside it.
REQUIRED_VALUE_BYTES = 1_153_434
#: The longest address (scope and key) pbserver builds: long kinds, property values and paths, escaped.
REQUIRED_KEY_BYTES = 40_000
#: What longvalues and versioned need to work with: a frame and the longest place in one value.
SHORTEST_VALUE_BYTES = 1 << 16


#: From the database upwards. Each must stand above those it builds on:
#: measured right on the adapter, so that it counts what the database is really asked;
#: retried below all that make several calls of one, so that they repeat single calls and not themselves;
#: ordered below all that scan;
#: versioned below longvalues, so that it compares and rewrites pointers and not megabytes;
#: longkeys above both, since it makes rows of its own, which may need either;
#: checked outermost, so that the others may rely on what it checks.
ORDER = ("retried", "ordered", "versioned", "longvalues", "longkeys", "checked")
_OVER_ORDERED: dict[str, Callable[[OrderedStore], OrderedStore]] = {
    "versioned": VersionedStore,
    "longvalues": LongValuesStore,
    "longkeys": LongKeysStore,
    "checked": CheckedStore,
}


def open_store(url: str, *, recorder: Recorder | None = None) -> OrderedStore:
    """Opens `NAME:PLACE?option=value`, ready but for `ensure_tables`.

    Raises Unsupported naming what is wrong with the URL or missing in the store, Unavailable when the place cannot be
    opened, Corrupt when what is there is not the store's.
    """
    parsed = parse_url(url)
    store = registry.opener(parsed.name)(parsed)
    try:
        return with_layers(parsed.name, store, recorder=recorder)
    except BaseException:
        store.close()
        raise


def is_shared(url: str) -> bool:
    """Whether several processes may open `url` at once; opens nothing. Raises Unsupported for an unknown store."""
    return registry.capabilities(parse_url(url).name).shared


def with_layers(name: str, store: PointStore, *, recorder: Recorder | None = None) -> OrderedStore:
    """`store` with what it lacks supplied by layers, and measured where a recorder is given."""
    capabilities = store.capabilities
    missing = missing_capabilities(capabilities)
    if missing:
        raise Unsupported(f"store {name} cannot be used: it lacks {', '.join(missing)}")
    layers = layers_for(capabilities)
    ordered = _lifted(name, store, layers, recorder)
    for layer in layers:
        if layer in _OVER_ORDERED:
            ordered = _OVER_ORDERED[layer](ordered)
    return ordered


def _lifted(name: str, store: PointStore, layers: list[str], recorder: Recorder | None) -> OrderedStore:
    """The store with the layers that stand over point stores too."""
    if isinstance(store, OrderedStore):
        ordered = store if recorder is None else MeasuredStore(store, recorder)
        return RetriedStore(ordered) if "retried" in layers else ordered
    if "ordered" not in layers:
        raise TypeError(f"store {name} claims to be ordered, but has no scan, fetch and snapshot")
    points = store if recorder is None else MeasuredPoints(store, recorder)
    return TreeStore(RetriedPoints(points) if "retried" in layers else points)


def layers_for(have: Capabilities) -> list[str]:
    """The layers that a store with such capabilities gets, from the database upwards.

    Versions matter only where a commit is applied row by row: late writes cannot arrive inside a transaction.
    """
    lift = not have.ordered and have.compare_and_set
    over = lifted(have) if lift else have
    chosen = {
        "retried": have.remote,
        "ordered": lift,
        "versioned": over.atomicity is not Atomicity.BATCH and over.compare_and_set and not over.versioned_writes,
        "longvalues": over.max_value_bytes is not None and over.max_value_bytes < REQUIRED_VALUE_BYTES,
        "longkeys": over.max_key_bytes is not None and over.max_key_bytes < REQUIRED_KEY_BYTES,
        "checked": True,
    }
    return [layer for layer in ORDER if chosen[layer]]


def missing_capabilities(below: Capabilities) -> list[str]:
    """What is needed and no layer supplies, in words; empty when the store will do."""
    layers = layers_for(below)
    have = lifted(below) if "ordered" in layers else below
    atomic = have.atomicity is Atomicity.BATCH
    tests = {
        "compare_and_set": have.compare_and_set,
        "ordered": have.ordered,
        "reverse_scan": have.reverse_scan,
        "consistency STRONG": have.consistency is Consistency.STRONG,
        f"max_key_bytes of at least {REQUIRED_KEY_BYTES} (it has {have.max_key_bytes}, and longkeys stands only over "
        "atomicity BATCH with snapshot)": "longkeys" not in layers or (atomic and have.snapshot),
        f"max_value_bytes of at least {SHORTEST_VALUE_BYTES} (it has {have.max_value_bytes})": (
            have.max_value_bytes is None or have.max_value_bytes >= SHORTEST_VALUE_BYTES
        ),
    }
    return [capability for capability, there in tests.items() if not there]
