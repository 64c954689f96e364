"""The README's support matrix is what the suites over real databases have left, and nothing by hand."""

from tests.clusters import matrix

FACTS = {
    "database": "some",
    "version": "1.2",
    "nodes": 3,
    "atomicity": "ROW",
    "layers": ["split", "checked"],
    "date": "2026-01-01",
    "passed": {"contract": 1, "datastore": 60, "differential": 1, "faults": 3},
    "failed": {"faults": 1},
}


def test_the_readme_shows_the_results() -> None:
    readme = matrix.README.read_text()
    assert matrix.BEGIN in readme
    assert matrix.with_table(readme) == readme


def test_what_failed_is_not_called_green() -> None:
    shown = "| some | 1.2 | 3 | ROW | split | green (1) | green (60) | green (1) | - | 1 FAILED | 2026-01-01 |\n"
    assert matrix.row(FACTS) == shown
