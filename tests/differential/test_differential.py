"""Random programs are played to this server and to Google's own implementation; every answer must be equal.

DIFFERENTIAL_SEED and DIFFERENTIAL_CALLS make longer or other runs, DIFFERENTIAL_WITHOUT leaves features of programs.py
out ("distinct,metadata"), DIFFERENTIAL_STORE=URL plays on another store, DIFFERENTIAL_REFEREE=java against Google's
Java implementation.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import zookeeper
from tests.differential.accepted import NOT_WITH_JAVA
from tests.differential.players import OurServer, Player, open_referee
from tests.differential.playing import play
from tests.differential.programs import FEATURES

SEED = int(os.environ.get("DIFFERENTIAL_SEED", "1"))
CALLS = int(os.environ.get("DIFFERENTIAL_CALLS", "5000"))
WITHOUT = frozenset(filter(None, os.environ.get("DIFFERENTIAL_WITHOUT", "").split(",")))
REFEREE = os.environ.get("DIFFERENTIAL_REFEREE", "python")

WEAK_STORES = [
    "weak:?atomicity=row&versions=yes&shuffle=1",
    "weak:?atomicity=row&ordered=no&stale=yes",
    "weak:?atomicity=scope&versions=yes",
    "weak:?atomicity=row&versions=no&max_value_bytes=1048576&max_key_bytes=250",
    "weak:?atomicity=row&versions=yes&compare_and_set=no&zookeeper={zookeeper}",
]

_TIMEOUT_SECONDS = 600 + CALLS // 5  # for the shrinking of a failure as well, and for Maven


@pytest.fixture
def referee(tmp_path: Path) -> Iterator[Player]:
    with ExitStack() as running:
        yield open_referee(REFEREE, running, tmp_path)


@pytest.mark.timeout(_TIMEOUT_SECONDS)
def test_every_answer_is_googles(referee: Player, tmp_path: Path) -> None:
    store = os.environ.get("DIFFERENTIAL_STORE", f"lmdb:{tmp_path}/store?durability=none")
    with OurServer(tmp_path, store) as ours:
        _play((ours, referee), CALLS)


@pytest.mark.timeout(_TIMEOUT_SECONDS)
@pytest.mark.parametrize("store", WEAK_STORES)
def test_every_answer_is_googles_on_a_weak_store(referee: Player, tmp_path: Path, store: str) -> None:
    url = store.format(zookeeper=zookeeper.place()) if "{" in store else store
    with OurServer(tmp_path, url) as ours:
        _play((ours, referee), CALLS // 5)


def _play(players: tuple[Player, Player], calls: int) -> None:
    unknown = WITHOUT - FEATURES
    assert not unknown, f"DIFFERENTIAL_WITHOUT names {sorted(unknown)}; there are {sorted(FEATURES)}"
    features = FEATURES - WITHOUT - (NOT_WITH_JAVA.keys() if REFEREE == "java" else set())
    play(players, calls, seed=SEED, features=features)
