"""The experiments by name; each is one function that measures, records and states its targets."""

from bench.experiments import (
    appscale,
    calls,
    durable,
    faults,
    growth,
    latency,
    layers,
    limits,
    memory,
    mixed,
    overhead,
    rows,
    ycsb,
)
from bench.run import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "limits": limits.run,
    "durable": durable.run,
    "growth": growth.run,
    "rows": rows.run,
    "calls": calls.run,
    "layers": layers.run,
    "latency": latency.run,
    "memory": memory.run,
    "appscale": appscale.run,
    "mixed": mixed.run,
    "ycsb": ycsb.run,
    "faults": faults.run,
    "overhead": overhead.run,
}

#: Those that run on any store: `--store` gives it.
ON_STORES: frozenset[str] = frozenset({"appscale", "mixed", "ycsb", "faults", "overhead"})
