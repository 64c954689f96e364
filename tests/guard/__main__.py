"""`python -m tests.guard [--renew]`: counts, prints, and with --renew keeps the figures that the test compares with."""

import sys
import tempfile
from pathlib import Path

from tests.guard.counting import KEPT, count, keep, kept


def main(renew: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="pbserver-guard-") as directory:
        counted = count(Path(directory))
    before = kept().times if KEPT.exists() else {}
    lines = [f"{counted.versions}; a calibration is {counted.calibration_instructions:,} instructions"]
    for name, times in counted.times.items():
        change = f"{times / before[name] - 1:+.1%}" if name in before else "new"
        instructions = round(times * counted.calibration_instructions)
        lines.append(f"{name:16} {instructions:14,} {times:10.4f} calibrations  {change}")
    if renew:
        keep(counted)
        lines.append(f"kept in {KEPT.name}")
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main("--renew" in sys.argv[1:])
