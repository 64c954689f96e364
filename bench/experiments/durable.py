"""Puts on disk before they are answered: group commit beside one commit for each put.

A group cannot be larger than the server's threads, so 64 clients are measured with --threads 9 and --threads 64.
What one sync costs is measured as well: where it is cheap there is little for a group to share.
"""

import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles

from bench import data, server
from bench.calls import Fresh
from bench.client import Load
from bench.result import filesystem
from bench.run import Run, Subject

NAME = "durable"
WAYS = {"grouped": "durability=sync", "one by one": "durability=sync&max_group=1"}
#: clients, threads
CASES = ((9, 9), (64, 9), (64, 64))


def run(bench: Run) -> None:
    templates = data.single_puts(b"Fresh", 500)
    with ExitStack() as stack:
        subjects = {}
        for threads in sorted({threads for _, threads in CASES}):
            for way, options in WAYS.items():
                url = f"lmdb:{bench.directory / f'{way[:3]}{threads}'}?{options}"
                ours = stack.enter_context(server.pbserver(url, bench.server_core, threads=threads))
                for clients in [clients for clients, wanted in CASES if wanted == threads]:
                    calls = Fresh(templates)
                    seconds = 1.5 * bench.scale.seconds
                    load = Load(
                        port=ours.port, connections=clients, calls=calls, seconds=seconds, warm_operations=clients
                    )
                    subjects[f"{way}, {clients} clients, {threads} threads"] = Subject(ours, load)
        found = bench.compare(NAME, subjects, by="per_second")
    p50, p90 = sync_us(bench.directory)
    kind = filesystem(bench.directory)
    bench.record(NAME, "write and fdatasync of 32 KiB", file_system=kind, p50_us=round(p50), p90_us=round(p90))
    for clients, threads in CASES:
        case = f"{clients} clients, {threads} threads"
        ratio = found[f"grouped, {case}"].per_second / found[f"one by one, {case}"].per_second
        if (clients, threads) == (64, 9):
            bench.record(NAME, f"synced puts, {case}, grouped / one by one", ratio=round(ratio, 2))
        else:
            limit = 2 if clients == 9 else 5
            bench.at_least(NAME, f"synced puts, {case}, grouped / one by one", ratio, limit)


def sync_us(directory: Path) -> tuple[float, float]:
    """What the disk asks for one synced write, without any store: median and ninth decile."""
    taken = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(100):
            os.pwrite(file.fileno(), os.urandom(32 << 10), 0)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    deciles = quantiles(taken, n=10)
    return deciles[4] * 1e6, deciles[8] * 1e6
