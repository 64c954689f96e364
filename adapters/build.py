"""From a store URL to a store PBServer can work with: adapter, then the layers its capabilities call for."""

from collections.abc import Callable
from importlib.util import find_spec

from adapters import registry
from adapters.contract import Atomicity, Capabilities, Consistency, OrderedStore, PointStore
from adapters.errors import Unsupported
from adapters.layers import chunks, cutkeys
from adapters.layers import versioned as versions
from adapters.layers.checked import CheckedStore
from adapters.layers.cutkeys import CutKeysStore
from adapters.layers.longkeys import LongKeysStore
from adapters.layers.longvalues import LongValuesStore
from adapters.layers.measured import MeasuredPoints, MeasuredStore, Recorder
from adapters.layers.ordered import TreeStore, lifted
from adapters.layers.recorded import Record
from adapters.layers.retried import RetriedPoints, RetriedStore
from adapters.layers.split import SplitStore, whole
from adapters.layers.versioned import VersionedStore
from adapters.layers.zookeeper import ZookeeperStore, missing_below, supplied
from adapters.url import parse_url

#: An entity of 1 MiB with its frame and its group's head beside it.
REQUIRED_VALUE_BYTES = 1_153_434
#: The longest address (scope and key) pbserver builds: long kinds, property values and paths, escaped.
REQUIRED_KEY_BYTES = 40_000
#: Below this a property's 1,500 bytes and the path behind them do not stand whole, and many rows may share their first
#: bytes: longkeys keeps even those in order, but needs BATCH and snapshots, and more calls. Above it cutkeys will do.
SHORT_KEY_BYTES = 2048
#: Rows of one call where it is applied as one: an entity's most index rows, the row itself, its group's head, and some.
REQUIRED_BATCH = 20_100
#: Keys and values of the same: a call of 10 MiB, and its index rows.
REQUIRED_BATCH_BYTES = 16 << 20
#: What longvalues and versioned need to work with: a frame and the longest place in one value.
SHORTEST_VALUE_BYTES = 1 << 16


#: From the database upwards. Each must stand above those it builds on:
#: measured right on the adapter, so that it counts what the database is really asked;
#: retried below all that make several calls of one, so that they repeat single calls and not themselves;
#: zookeeper below all that need compare-and-set;
#: ordered below all that scan;
#: split below versioned, which passes on rows without versions as it gets them;
#: versioned below longvalues, so that it compares and rewrites pointers and not megabytes;
#: longkeys above both, since it makes rows of its own, which may need either; cutkeys in the same place, since it
#: makes values longer;
#: checked outermost, so that the others may rely on what it checks.
ORDER = ("retried", "zookeeper", "ordered", "split", "versioned", "longvalues", "longkeys", "cutkeys", "checked")
_OVER_ORDERED: dict[str, Callable[[OrderedStore], OrderedStore]] = {
    "split": SplitStore,
    "versioned": VersionedStore,
    "longvalues": LongValuesStore,
    "longkeys": LongKeysStore,
    "cutkeys": CutKeysStore,
}


def open_store(url: str, *, recorder: Recorder | None = None) -> OrderedStore:
    """Opens `NAME:PLACE?option=value`, ready but for `ensure_tables`.

    The option `zookeeper=HOST:PORT,HOST:PORT/CHROOT` adds compare-and-set to a store that has none.

    Raises Unsupported naming what is wrong with the URL or missing in the store, Unavailable when the place cannot be
    opened, Corrupt when what is there is not the store's.
    """
    parsed = parse_url(url)
    store = registry.opener(parsed.name)(parsed)
    try:
        return with_layers(parsed.name, store, recorder=recorder, zookeeper=parsed.zookeeper)
    except BaseException:
        store.close()
        raise


def is_shared(url: str) -> bool:
    """Whether several processes may open `url` at once; opens nothing. Raises Unsupported for an unknown store."""
    return registry.capabilities(parse_url(url).name).shared


def with_layers(
    name: str, store: PointStore, *, recorder: Recorder | None = None, zookeeper: str | None = None
) -> OrderedStore:
    """`store` with what it lacks supplied by layers, and measured where a recorder is given."""
    capabilities = store.capabilities
    if zookeeper is not None:
        _check_zookeeper_helps(name, capabilities)
    missing = missing_capabilities(capabilities, zookeeper=zookeeper is not None)
    if missing:
        raise Unsupported(f"store {name} cannot be used: it lacks {', '.join(missing)}")
    layers = layers_for(capabilities, zookeeper=zookeeper is not None)
    ordered = _lifted(name, store, layers, recorder)
    if zookeeper is not None:
        ordered = _with_zookeeper(ordered, zookeeper)
    for layer in layers:
        if layer in _OVER_ORDERED:
            ordered = _OVER_ORDERED[layer](ordered)
    return CheckedStore(ordered, Record(ordered))


def _lifted(name: str, store: PointStore, layers: list[str], recorder: Recorder | None) -> OrderedStore:
    """The store with the layers that stand over point stores too."""
    if isinstance(store, OrderedStore):
        ordered = store if recorder is None else MeasuredStore(store, recorder)
        return RetriedStore(ordered) if "retried" in layers else ordered
    if "ordered" not in layers:
        raise TypeError(f"store {name} claims to be ordered, but has no scan, fetch and snapshot")
    points = store if recorder is None else MeasuredPoints(store, recorder)
    return TreeStore(RetriedPoints(points) if "retried" in layers else points)


def _check_zookeeper_helps(name: str, have: Capabilities) -> None:
    if have.compare_and_set:
        raise Unsupported(f"store {name} has compare_and_set itself: leave out the option zookeeper")
    missing = missing_below(have)
    if missing:
        raise Unsupported(
            f"store {name} cannot be used: it lacks compare_and_set, and the option zookeeper supplies it only to a "
            f"store with {', '.join(missing)}"
        )


def _with_zookeeper(store: OrderedStore, where: str) -> OrderedStore:
    if find_spec("kazoo") is None:
        raise Unsupported("option zookeeper: driver kazoo is not installed; pip install 'pbserver[zookeeper]'")
    from adapters.layers.znodes import Znodes

    return ZookeeperStore(store, Znodes(where))


def layers_for(have: Capabilities, *, zookeeper: bool = False) -> list[str]:
    """The layers that a store with such capabilities gets, from the database upwards; `zookeeper`: the option is given.

    Versions matter only where a commit is applied row by row: late writes cannot arrive inside a transaction. Without
    snapshots pbserver commits row by row over BATCH stores too.
    """
    base = supplied(have) if zookeeper else have
    lift = not base.ordered and base.compare_and_set
    divided = not lift and base.atomicity is Atomicity.ROW and (base.max_batch or base.max_batch_bytes) is not None
    over = lifted(base) if lift else whole(base) if divided else base
    batch = over.atomicity is Atomicity.BATCH
    versioned = not (batch and over.snapshot) and over.compare_and_set and not over.versioned_writes
    short_keys = over.max_key_bytes is not None and over.max_key_bytes < REQUIRED_KEY_BYTES
    chained = batch and over.snapshot and over.max_key_bytes is not None and over.max_key_bytes < SHORT_KEY_BYTES
    value_bytes = REQUIRED_VALUE_BYTES + versioned * versions.FRAME_BYTES
    if short_keys and not chained:
        value_bytes += cutkeys.LENGTH_BYTES + cutkeys.LONGEST_KEY_BYTES
    chosen = {
        "retried": have.remote,
        "zookeeper": zookeeper,
        "ordered": lift,
        "split": divided,
        "versioned": versioned,
        "longvalues": over.max_value_bytes is not None and over.max_value_bytes < value_bytes,
        "longkeys": short_keys and chained,
        "cutkeys": short_keys and not chained,
        "checked": True,
    }
    return [layer for layer in ORDER if chosen[layer]]


def missing_capabilities(below: Capabilities, *, zookeeper: bool = False) -> list[str]:
    """What is needed and no layer supplies, in words; empty when the store will do."""
    layers = layers_for(below, zookeeper=zookeeper)
    base = supplied(below) if zookeeper else below
    have = lifted(base) if "ordered" in layers else whole(base) if "split" in layers else base
    as_one = base.atomicity is not Atomicity.ROW
    rows, size = (base.max_batch, base.max_batch_bytes) if as_one else (None, None)
    advice = "" if missing_below(below) else " (the option zookeeper=HOST:PORT,HOST:PORT/CHROOT supplies it)"
    shortest_keys = {"longkeys": chunks.SHORTEST_LIMIT, "cutkeys": cutkeys.SHORTEST_LIMIT}
    key_bytes = max((shortest_keys.get(layer, 0) for layer in layers), default=0)
    tests = {
        f"compare_and_set{advice}": have.compare_and_set,
        "ordered": have.ordered,
        "reverse_scan": have.reverse_scan,
        "consistency STRONG": have.consistency is Consistency.STRONG,
        f"max_key_bytes of at least {key_bytes} (it has {have.max_key_bytes})": (
            have.max_key_bytes is None or have.max_key_bytes >= key_bytes
        ),
        f"max_value_bytes of at least {SHORTEST_VALUE_BYTES} (it has {have.max_value_bytes})": (
            have.max_value_bytes is None or have.max_value_bytes >= SHORTEST_VALUE_BYTES
        ),
        f"max_batch of at least {REQUIRED_BATCH} (it has {rows})": rows is None or rows >= REQUIRED_BATCH,
        f"max_batch_bytes of at least {REQUIRED_BATCH_BYTES} (it has {size})": (
            size is None or size >= REQUIRED_BATCH_BYTES
        ),
    }
    return [capability for capability, there in tests.items() if not there]
