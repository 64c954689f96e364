"""From a store URL to a store PBServer can work with: adapter, then the layers its capabilities call for."""

from adapters import registry
from adapters.contract import Atomicity, Capabilities, Consistency, OrderedStore
from adapters.errors import Unsupported
from adapters.layers.checked import CheckedStore
from adapters.layers.longkeys import LongKeysStore
from adapters.url import parse_url

#: An entity of 1 MiB with its frame and its group's head beside it.
REQUIRED_VALUE_BYTES = 1_153_434
#: The longest address (scope and key) pbserver builds: long kinds, property values and paths, escaped.
REQUIRED_KEY_BYTES = 40_000


def open_store(url: str) -> OrderedStore:
    """Opens `NAME:PLACE?option=value`, ready but for `ensure_tables`.

    Raises Unsupported naming what is wrong with the URL or missing in the store, Unavailable when the place cannot be
    opened, Corrupt when what is there is not the store's.
    """
    parsed = parse_url(url)
    store = registry.opener(parsed.name)(parsed)
    try:
        return with_layers(parsed.name, store)
    except BaseException:
        store.close()
        raise


def is_shared(url: str) -> bool:
    """Whether several processes may open `url` at once; opens nothing. Raises Unsupported for an unknown store."""
    return registry.is_shared(parse_url(url).name)


def with_layers(name: str, store: OrderedStore) -> OrderedStore:
    """`store` with what it lacks supplied by layers; `checked` is always outermost."""
    capabilities = store.capabilities
    missing = missing_capabilities(capabilities)
    if missing:
        raise Unsupported(f"store {name} cannot be used: it lacks {', '.join(missing)}")
    if capabilities.max_key_bytes is not None and capabilities.max_key_bytes < REQUIRED_KEY_BYTES:
        store = LongKeysStore(store)
    return CheckedStore(store)


def missing_capabilities(have: Capabilities) -> list[str]:
    """What this release needs and no layer of it supplies, in words; empty when the store will do."""
    tests = {
        "atomicity BATCH": have.atomicity is Atomicity.BATCH,
        "compare_and_set": have.compare_and_set,
        "ordered": have.ordered,
        "reverse_scan": have.reverse_scan,
        "snapshot": have.snapshot,
        "consistency STRONG": have.consistency is Consistency.STRONG,
        f"max_value_bytes of at least {REQUIRED_VALUE_BYTES} (it has {have.max_value_bytes})": (
            have.max_value_bytes is None or have.max_value_bytes >= REQUIRED_VALUE_BYTES
        ),
    }
    return [capability for capability, there in tests.items() if not there]
