"""Cassandra on three machines."""

from collections.abc import Iterator

import pytest
import tomlkit
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy

from tests.hosts.proofs import *  # noqa: F403 - the proofs, which are the same for every database
from tests.hosts.site import Site, site

TOKENS = {-6_000_000_000_000_000_000, 0, 6_000_000_000_000_000_000}


@pytest.fixture(scope="module")
def shop() -> Iterator[Site]:
    """The third node has the tokens of the layout, the others choose theirs."""
    with site("cassandra", ["peer"] * 3, spare=1) as made:
        text = tomlkit.parse(made.layout.read_text())
        text["nodes"][2]["tokens"] = sorted(TOKENS)  # type: ignore[index]
        made.layout.write_text(tomlkit.dumps(text))
        made.raise_()
        first, second, third = (tokens_of(host.address) for host in made.hosts)
        assert (len(first), len(second), third) == (16, 16, TOKENS)
        yield made


def tokens_of(address: str) -> set[int]:
    itself = {EXEC_PROFILE_DEFAULT: ExecutionProfile(WhiteListRoundRobinPolicy([address]))}
    with Cluster([address], protocol_version=5, execution_profiles=itself) as driver:
        (row,) = driver.connect().execute("SELECT tokens FROM system.local")
    return {int(token) for token in row.tokens}
