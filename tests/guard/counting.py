"""Instructions of one request, counted by callgrind in tests.guard.program.

A count depends on the Python build, the libraries and the CPU, so what is kept and compared is how many times the
instructions of a calibration a request takes, counted in the same run. Between runs that differs by 0.1 %, between
builds of Python (3.11 of Debian and of our own, 3.12, 3.13) by up to 6 %, where the instructions themselves differ by a
quarter.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from platform import python_version

from controller.engines.tools import need_command
from tests.guard.program import BLOCKS, REPEATS

KEPT = Path(__file__).parent / "instructions.json"
MARKER = "getloadavg"
TOLERANCE = 0.10
RENEW = "if that is meant, renew the figures: make guard RENEW=1"
_CALIBRATION = "calibration"
_PACKAGES = ("protobuf", "lmdb", "httptools")
_ROOT = Path(__file__).parents[2]
_TOTALS = re.compile(rb"^totals: (\d+)$", re.MULTILINE)
_SECONDS = 600


class GuardFailed(Exception):
    """Nothing could be counted; the text has what the program said."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Of one run. `times`: by request, how many times the instructions of one calibration it takes."""

    python: str
    packages: dict[str, str]
    calibration_instructions: int
    times: dict[str, float]

    @property
    def versions(self) -> str:
        return ", ".join([f"Python {self.python}", *(f"{name} {has}" for name, has in self.packages.items())])


def count(directory: Path) -> Counted:
    """Fills a store in `directory`, which is empty, and counts. Raises GuardFailed, or EngineError without valgrind."""
    need_command("valgrind", ["valgrind"], lambda line: None)
    store = f"lmdb:{directory / 'store'}?durability=none"
    _run([sys.executable, "-m", "tests.guard.program", "fill", store])
    out = directory / "out"
    options = [f"--callgrind-out-file={out}", f"--dump-before={MARKER}", "--instr-atstart=no"]
    _run(["valgrind", "--tool=callgrind", *options, sys.executable, "-m", "tests.guard.program", "count", store])
    instructions = _instructions(out)
    return Counted(
        python=python_version(),
        packages={name: version(name) for name in _PACKAGES},
        calibration_instructions=round(instructions[_CALIBRATION]),
        times={
            name: round(found / instructions[_CALIBRATION], 4)
            for name, found in instructions.items()
            if name != _CALIBRATION
        },
    )


def _run(command: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PBSERVER_")}
    environment["PYTHONHASHSEED"] = "0"
    done = subprocess.run(
        command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    if done.returncode:
        raise GuardFailed(f"{' '.join(command)} ended with {done.returncode}; it said:\n{done.stderr[-3000:]}")


def _instructions(out: Path) -> dict[str, float]:
    """Of one request of each block, the less of its repeats. Mark number n is where out.n ends; the first begins."""
    found: dict[str, float] = {}
    number = 1
    for name, requests in BLOCKS.items():
        of_block = []
        for _ in range(REPEATS):
            number += 1
            totals = _TOTALS.search(out.with_name(f"{out.name}.{number}").read_bytes())
            if totals is None:
                raise GuardFailed(f"{out.name}.{number} of callgrind has no totals")
            of_block.append(int(totals[1]) / requests)
        found[name] = min(of_block)
    return found


def kept() -> Counted:
    return Counted(**json.loads(KEPT.read_text(encoding="utf-8")))


def keep(counted: Counted) -> None:
    KEPT.write_text(json.dumps(asdict(counted), indent=2) + "\n", encoding="utf-8")


def slower(counted: Counted, before: Counted) -> list[str]:
    """A sentence for each request that takes too many more instructions than before."""
    return [_sentence(name, counted, before) for name in before.times if _change(name, counted, before) > TOLERANCE]


def faster(counted: Counted, before: Counted) -> list[str]:
    """A sentence for each request whose kept figure no longer guards anything."""
    return [_sentence(name, counted, before) for name in before.times if _change(name, counted, before) < -TOLERANCE]


def _change(name: str, counted: Counted, before: Counted) -> float:
    return counted.times[name] / before.times[name] - 1


def _sentence(name: str, counted: Counted, before: Counted) -> str:
    now, then = counted.times[name], before.times[name]
    return (
        f"{name}: {now:.3f} calibrations of instructions ({counted.versions}), "
        f"{then:.3f} are kept ({before.versions}): {_change(name, counted, before):+.1%}; {RENEW}"
    )
