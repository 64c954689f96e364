"""The same queries in a small and in a large store: what grows with the data, and what does not."""

from collections.abc import Sequence
from contextlib import ExitStack

from bench import server
from bench.calls import Cycle
from bench.client import Load
from bench.measure import Figures
from bench.run import Run, Subject
from bench.stored import Properties, load, one_value

KIND = b"Row"


def compare(
    bench: Run, name: str, small: int, queries: Sequence[bytes], *, least_bytes: int, properties: Properties = one_value
) -> tuple[Figures, Figures]:
    """The figures of a store of `small` entities and of one of the scale's large number, one connection each.

    Two stores, so that the small one really is small.
    """
    with ExitStack() as stack:
        subjects = {}
        for count in (small, bench.scale.large_entities):
            url = f"lmdb:{bench.directory / str(count)}?durability=none"
            title = f"{count:,} entities"
            with bench.step(f"{name}: loading {title}", count) as step, server.on_core(bench.server_core):
                load(url, KIND, count, step, properties)
            ours = stack.enter_context(server.pbserver(url, bench.server_core))
            calls = Cycle(queries, least_bytes=least_bytes)
            subjects[title] = Subject(
                ours, Load(port=ours.port, connections=1, calls=calls, seconds=bench.scale.seconds)
            )
        found = [*bench.compare(name, subjects, by="p50_us").values()]
    return found[0], found[1]
