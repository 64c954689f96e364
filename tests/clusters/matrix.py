"""The support matrix in the README, from the results that `make matrix` has left in tests/clusters/results.

`python -m tests.clusters.matrix` writes it; `--check` only says whether it is as it should be.
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
README = ROOT / "README.md"
BEGIN, END = "<!-- support matrix: written by make matrix -->\n", "<!-- end of the support matrix -->\n"
PROOFS = {
    "contract": "contract",
    "datastore": "Datastore suite",
    "differential": "answers as Google's",
    "isolation": "isolation",
    "faults": "faults",
}


def row(facts: dict[str, Any]) -> str:
    proofs = []
    for proof in PROOFS:
        passed, failed = facts["passed"].get(proof, 0), facts["failed"].get(proof, 0)
        proofs.append("-" if not passed + failed else f"{failed} FAILED" if failed else f"green ({passed})")
    layers = ", ".join(layer for layer in facts["layers"] if layer != "checked") or "-"
    about = [facts["database"], facts["version"], str(facts["nodes"]), facts["atomicity"], layers]
    return "| " + " | ".join([*about, *proofs, facts["date"]]) + " |\n"


def table() -> str:
    """The results as Markdown."""
    heads = ["store", "really run", "nodes", "atomicity", "layers", *PROOFS.values(), "date"]
    found = [json.loads(each.read_text()) for each in sorted(RESULTS.glob("*.json"))]
    lines = ["| " + " | ".join(heads) + " |\n", "|" + "---|" * len(heads) + "\n", *map(row, found)]
    return "".join(lines)


def with_table(readme: str) -> str:
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table() + END + after


def main() -> None:
    readme = README.read_text()
    wanted = with_table(readme)
    if "--check" in sys.argv:
        sys.exit(0 if readme == wanted else "the support matrix in README.md is not what tests/clusters/results say")
    README.write_text(wanted)


if __name__ == "__main__":
    main()
