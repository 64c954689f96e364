"""MariaDB Galera on three machines."""

from collections.abc import Iterator

import pytest

from tests.hosts.proofs import *  # noqa: F403 - the proofs, which are the same for every database
from tests.hosts.site import Site, site


@pytest.fixture(scope="module")
def shop() -> Iterator[Site]:
    with site("mysql", ["peer"] * 3) as made:
        made.raise_()
        yield made
