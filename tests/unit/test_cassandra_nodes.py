"""What a Cassandra cluster says of itself, and how many copies a store is to have there."""

import pytest

from adapters.cassandra.nodes import facts, parse_place
from adapters.errors import Unsupported
from adapters.url import parse_url

SETTINGS = {"commitlog_sync": "batch", "commitlog_segment_size": "8MiB"}
KEEPS_TWO = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "2"}


@pytest.mark.parametrize(
    ("options", "keyspace", "replicas"),
    [("", None, 3), ("?replication=2", None, 2), ("", KEEPS_TWO, 2), ("?replication=2", KEEPS_TWO, 2)],
)
def test_a_new_keyspace_gets_the_replicas_that_are_asked_for_and_an_old_one_keeps_its_own(
    options: str, keyspace: dict[str, str] | None, replicas: int
) -> None:
    place = parse_place(parse_url(f"cassandra:127.0.0.1{options}"))
    assert facts(place, "dc1", 4, keyspace, SETTINGS).replicas == replicas


def test_a_keyspace_that_keeps_another_number_of_replicas_is_refused() -> None:
    place = parse_place(parse_url("cassandra:127.0.0.1?replication=3"))
    with pytest.raises(Unsupported, match="the keyspace keeps 2 replicas, not 3; give replication=2, or change the"):
        facts(place, "dc1", 4, KEEPS_TWO, SETTINGS)
