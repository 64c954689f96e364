"""The experiments by name; each is one function that measures, records and states its targets."""

from bench.experiments import calls, durable, join, latency, layers, limit, memory, noop, operations, query, rows
from bench.run import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "noop": noop.run,
    "operations": operations.run,
    "query": query.run,
    "durable": durable.run,
    "limit": limit.run,
    "join": join.run,
    "rows": rows.run,
    "calls": calls.run,
    "layers": layers.run,
    "latency": latency.run,
    "memory": memory.run,
}
