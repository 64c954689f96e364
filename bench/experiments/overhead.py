"""What PBServer adds to the native driver, by the number of entries: insert, read, update and delete at 10,000 entries
and at each doubling (Rafique et al. went from 10 thousand to 1.28 million on 1, 3 and 5 nodes).

The sides are those of bench.clusters: (a) has one bare row, which is the work of the published middleware; (b) has the
rows and the guarantees of PBServer. What is read and changed is a sample of all entries. On the embedded store the
native driver is py-lmdb in this process, and on the one in the run's own directory nobody syncs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from adapters.errors import StoreError
from adapters.url import parse_url
from bench import data, stores
from bench.clusters.databases import BY_ADAPTER, Compared
from bench.clusters.overhead import BARE, INDEXED, Contest, booted, contest, operation_of
from bench.published import MIDDLEWARE
from bench.run import Run
from bench.served import on_each_store
from bench.server import ServerFailed

NAME = "overhead"
OPERATIONS = tuple(MIDDLEWARE)
LEAST = 10_000
#: Times as much over native (b) at the most entries as at the fewest.
MOST_GROWTH = 1.5
_SHARE = 50  # of the scale's large number: entries that are stored one by one take time
_AT_ONCE = 20


def run(bench: Run) -> None:
    on_each_store(bench, lambda store: _one(bench, store))


def _one(bench: Run, store: str) -> None:
    with _opened(bench, store) as (compared, url), contest(bench, compared, url, cores=False) as everybody:
        counts = sizes(bench.asked.most or max(2, bench.scale.large_entities // _SHARE))
        over: dict[str, list[float]] = {
            f"{operation}, {way}": [] for operation in OPERATIONS for way in everybody.servers
        }
        stored = 0
        for count in counts:
            _grow(bench, everybody, count - stored, f"{NAME}: {stores.label(store)}, up to {count:,} entries")
            stored = count
            for operation in OPERATIONS:
                ratios = _measured(bench, store, compared, everybody, operation, count)
                for way, ratio in ratios.items():
                    over[f"{operation}, {way}"].append(ratio)
    for name, by_size in over.items():
        operation, _, way = name.partition(", ")
        goal = compared.write_goals[way]
        if operation != "read" and goal is not None:
            said = f"{stores.label(store)}: {name}, over native (b) at {counts[-1]:,} entries"
            bench.at_most(NAME, said, by_size[-1], goal)
        said = f"{stores.label(store)}: {name}, over native (b) at {counts[-1]:,} entries / {counts[0]:,}"
        bench.at_most(NAME, said, by_size[-1] / by_size[0], MOST_GROWTH)


def sizes(most: int) -> list[int]:
    """LEAST and its doublings up to `most`; where those are fewer than two, half of `most` and `most`."""
    found = [LEAST]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found if len(found) > 1 else [max(1, most // 2), most]


@contextmanager
def _opened(bench: Run, store: str) -> Iterator[tuple[Compared, str]]:
    """Who is compared on the store, and its URL. Raises ServerFailed."""
    if store.startswith(stores.SERVER):
        raise ServerFailed(f"{NAME} starts PBServers of its own: give the store's URL instead of {store}")
    cluster = store.startswith(stores.CLUSTER)
    name = store.removeprefix(stores.CLUSTER) if cluster else parse_url(bench.store_url(store)).name
    compared = BY_ADAPTER.get(name)
    if compared is None:
        raise ServerFailed(f"there is no native side for {name}; there are: {', '.join(BY_ADAPTER)}")
    if cluster:
        with booted(bench, name, bench.asked.nodes) as url:
            yield compared, url
    else:
        try:
            yield compared, f"{bench.store_url(store)}?durability=none" if store == stores.EMBEDDED else store
        except StoreError as error:
            raise ServerFailed(str(error)) from error


def _grow(bench: Run, everybody: Contest, count: int, title: str) -> None:
    """So many entries more for everybody, each with keys of his own."""
    with bench.step(title, count * len(everybody.works)) as step:
        done = 0
        for name, work in everybody.works.items():
            things = work.grow(count)
            while some := [*islice(things, _AT_ONCE)]:
                if name in everybody.natives:
                    for thing in some:
                        everybody.natives[name].insert(thing)
                else:
                    everybody.servers[name].call(data.puts([thing.message for thing in some]))
                done += len(some)
                step(done)


def _measured(
    bench: Run, store: str, compared: Compared, everybody: Contest, operation: str, entries: int
) -> dict[str, float]:
    """Times of native (b) that PBServer takes, by the way to acknowledge."""
    title = f"{stores.label(store)}, {entries:,} entries: {operation}"
    asked = operation_of(bench, operation, compared.operations)
    subjects = everybody.subjects(asked, bench.server_core)
    figures = bench.compare(NAME, {f"{title}: {who}": each for who, each in subjects.items()}, by="p50_us")
    took = {who: figures[f"{title}: {who}"].p50_us / 1000 for who in subjects}
    for way in everybody.servers:
        ours = took[f"pbserver, {way}"]
        bench.record(
            NAME,
            f"{title}, {way}",
            store=stores.label(store),
            nodes=bench.asked.nodes,
            entries=entries,
            operation=operation,
            acknowledge=way,
            pbserver_ms=round(ours, 4),
            native_ms=round(took[BARE], 4),
            indexed_ms=round(took[INDEXED], 4),
            over_native_percent=round((ours / took[BARE] - 1) * 100, 1),
            over_indexed_percent=round((ours / took[INDEXED] - 1) * 100, 1),
        )
    return {way: took[f"pbserver, {way}"] / took[INDEXED] for way in everybody.servers}
