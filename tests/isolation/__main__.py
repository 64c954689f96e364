"""`python -m tests.isolation FILE`: judges a history that was kept."""

import sys
from pathlib import Path

from tests.isolation.checker import check
from tests.isolation.history import load

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    history = load(Path(sys.argv[1]))
    anomalies = check(history)
    sys.stdout.write("".join(f"{anomaly}\n\n" for anomaly in anomalies))
    sys.stdout.write(f"{len(history)} transactions, {len(anomalies)} anomalies\n")
    sys.exit(bool(anomalies))
