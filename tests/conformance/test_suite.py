"""The suite of adapters/conformance over the matrix of conftest.py."""

from pathlib import Path

from adapters.build import ORDER
from adapters.conformance.matrix import Matrix
from adapters.conformance.test_batches import *  # noqa: F403
from adapters.conformance.test_conditions import *  # noqa: F403
from adapters.conformance.test_long_keys import *  # noqa: F403
from adapters.conformance.test_model import *  # noqa: F403
from adapters.conformance.test_points import *  # noqa: F403
from adapters.conformance.test_ranges import *  # noqa: F403
from adapters.conformance.test_refusals import *  # noqa: F403
from adapters.conformance.test_rows import *  # noqa: F403
from adapters.conformance.test_scans import *  # noqa: F403
from adapters.conformance.test_snapshots import *  # noqa: F403
from adapters.conformance.test_versions import *  # noqa: F403
from adapters.registry import STORES

#: Databases that need servers run the suite on real ones, in a file named after them.
CLUSTERS = Path(__file__).parents[1] / "clusters"


def test_every_registered_store_and_every_layer_is_in_the_matrix(matrix: Matrix) -> None:
    here = {name.partition("-")[0] for name in matrix.entries}
    elsewhere = {path.stem[len("test_") : -len("_store")] for path in CLUSTERS.glob("test_*_store.py")}
    assert here | elsewhere == set(STORES)
    assert here.isdisjoint(elsewhere)
    assert {*ORDER} - {"checked", "longkeys"} <= {name.rpartition("-")[2] for name in matrix.entries}


def test_every_need_is_met_by_a_store_of_the_matrix_and_missed_by_another(matrix: Matrix) -> None:
    from adapters.conformance.matrix import NEEDS

    for fixture, suits in NEEDS.items():
        met = {suits(claims) for claims in matrix.claims.values()}
        assert met == {True, False} or fixture == "points"
