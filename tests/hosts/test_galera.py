"""MariaDB Galera on three machines."""

from collections.abc import Iterator

import pytest

from tests.hosts.agents import *  # noqa: F403
from tests.hosts.backups import *  # noqa: F403
from tests.hosts.proofs import *  # noqa: F403 - the last of them is `down`
from tests.hosts.site import Site, site


@pytest.fixture(scope="module")
def shop() -> Iterator[Site]:
    with site("mysql", ["peer"] * 3, spare=1) as made:
        made.raise_()
        yield made
