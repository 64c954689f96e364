"""The core workloads of YCSB: each first in a closed loop by nine connections, as fast as that goes, then in an open
loop at several rates: latency against throughput.

The records are loaded once. D and E insert some more, and each of their measurements looks at what it has inserted
itself; so what came before matters little, as long as there are many records.
"""

import os
from functools import partial
from typing import Any

from bench import prices
from bench.calls import Calls
from bench.client import Errors, Load, Sample
from bench.run import Run
from bench.served import Served, on_each_store, served
from bench.workloads import WORKLOADS, Loading, Records, calls

NAME = "ycsb"
THREADS = 9
_OPEN_CONNECTIONS = 64  # so many may be waiting; more operations than that begin late
_AS_INTENDED = 0.9
_APART = 10_000_000  # numbers of the records that a generator may insert in one measurement


def run(bench: Run) -> None:
    on_each_store(bench, lambda store: _one(bench, store))


def _one(bench: Run, store: str) -> None:
    kind = b"usertable" + os.urandom(3).hex().encode()
    of_each = 1 + len(bench.asked.rates or bench.scale.ycsb.shares)
    with (
        served(bench, store) as place,
        bench.step(f"{NAME}: {place.store}, all workloads", len(WORKLOADS) * of_each) as step,
    ):
        loaded = _load(bench, place, kind)
        bench.once(NAME, f"{place.store}: load", lambda: _facts(place, "load", None, loaded))
        least = 1.0
        for number, workload in enumerate(WORKLOADS):
            step(number * of_each)
            measured = partial(_measured, bench, place, kind, workload)
            peak = bench.once(NAME, f"{place.store}: {workload}", partial(measured, None, number * 100))
            _price(bench, place, workload, peak["achieved_per_second"])
            for at, rate in enumerate(_rates(bench, peak["achieved_per_second"]), 1):
                step(number * of_each + at)
                title = f"{place.store}: {workload}, {rate:g} a second"
                found = bench.once(NAME, title, partial(measured, rate, number * 100 + at))
                if at == 1:
                    least = min(least, found["achieved_per_second"] / rate)
    bench.at_least(NAME, f"{place.store}: achieved at the lowest rates / intended", least, _AS_INTENDED)


def _rates(bench: Run, peak: float) -> list[float]:
    """Targets, upwards."""
    return sorted({*(bench.asked.rates or (_round(peak * share) for share in bench.scale.ycsb.shares))})


def _load(bench: Run, place: Served, kind: bytes) -> Sample:
    count = bench.scale.ycsb.records

    def loading(number: int, of: int) -> Calls:
        records = Records(kind, count, first=0, latest=False, seed=number)
        return Loading(records, range(number, count, of))

    load = Load(connections=THREADS, calls=loading(0, 1), warm_operations=0, errors=Errors.FAIL)
    return place.measure(bench, f"{NAME}: {place.store}, loading", load, loading, count)


def _measured(bench: Run, place: Served, kind: bytes, workload: str, rate: float | None, number: int) -> dict[str, Any]:
    """`number`: of the measurement, other than that of any other."""
    count = bench.scale.ycsb.records

    def sent(generator: int, of: int) -> Calls:
        del of
        first = count + (number * 100 + generator) * _APART
        latest = WORKLOADS[workload].latest
        return calls(WORKLOADS[workload], Records(kind, count, first=first, latest=latest, seed=generator), generator)

    load = Load(
        connections=_OPEN_CONNECTIONS if rate else THREADS,
        calls=sent(0, 1),
        seconds=bench.scale.ycsb.seconds,
        per_second=rate or 0.0,
        errors=Errors.COUNT,
    )
    at = f"{rate:g} a second" if rate else "as fast as it goes"
    return _facts(place, workload, rate, place.measure(bench, f"{NAME}: {place.store}, {workload}, {at}", load, sent))


def _facts(place: Served, workload: str, rate: float | None, sample: Sample) -> dict[str, Any]:
    every = sample.all
    parts = {
        name: {
            "operations": tally.latencies.count,
            **tally.latencies.milliseconds(),
            "errors": dict(tally.errors),
        }
        for name, tally in sorted(sample.tallies.items())
    }
    return {
        **place.named,
        "workload": workload,
        "target_per_second": rate,
        "achieved_per_second": round(every.latencies.count / sample.seconds, 1),
        **every.latencies.milliseconds(),
        "histogram": every.latencies.compact(),
        "operations": every.latencies.count,
        "errors": dict(every.errors),
        "not_begun": sample.not_begun,
        "generator_busy": round(sample.busy, 3),
        "parts": parts,
    }


def _price(bench: Run, place: Served, workload: str, per_second: float) -> None:
    """What the workload costs on the machine that the operator says this is."""
    if bench.asked.machine is None:
        return
    price = prices.of(bench.asked.machine)
    values = {
        **place.named,
        "workload": workload,
        "machine": price.machine,
        "price_per_hour": price.per_hour,
        "currency": price.currency,
        "operations_per_unit": round(per_second * 3600 / (price.per_hour * place.nodes)),
    }
    bench.once(NAME, f"{place.store}: {workload}, price", lambda: values)


def _round(rate: float) -> float:
    """Two digits of it, so that a target is easily read; not below one a second."""
    return max(1.0, float(f"{rate:.2g}"))
