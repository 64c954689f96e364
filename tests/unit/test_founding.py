"""What the head keeps for good once a cluster was whole."""

import asyncio
from pathlib import Path

from pydantic import SecretStr

from controller.agent.home import AgentSettings, Home
from controller.agent.messages import Done, Want
from controller.agent.parts import Parts
from controller.head.api import HeadCalls
from controller.head.calls import Agents
from controller.head.cycle import Head
from controller.head.founding import Founding
from controller.layout import Layout
from deploy.certificates import Keys
from tests.unit.test_layout import made

QUORUM = made("hbase", "master+zookeeper", "slave+zookeeper", "slave+zookeeper")
ALONE = made("hbase", "master", "slave", "slave")


def test_the_keepers_are_those_that_there_were_when_it_was_whole_first(tmp_path: Path) -> None:
    founding = Founding(Home(tmp_path))
    assert (founding.done, founding.joined, founding.refusal(Parts(ALONE))) == (False, set(), "")
    founding.note({3, 1, 2}, Parts(QUORUM))
    assert (founding.done, founding.joined) == (True, {1, 2, 3})
    four = made("hbase", "master+zookeeper", "slave+zookeeper", "slave+zookeeper", "slave")
    founding.note({1, 2, 3, 4}, Parts(four))
    assert (tmp_path / "agent" / "founded").read_text().split() == ["1", "2", "3", "4"]
    assert founding.refusal(Parts(four)) == ""
    assert founding.refusal(Parts(ALONE)).startswith("role zookeeper: node1, node2, node3 had it, no node has it now")


def test_a_cluster_from_before_there_were_keepers_has_none(tmp_path: Path) -> None:
    founding = Founding(Home(tmp_path))
    founding.note({1, 2, 3}, Parts(ALONE))
    (tmp_path / "agent" / "keepers").unlink()
    assert founding.refusal(Parts(ALONE)) == ""
    assert "no node had it, node1, node2, node3 has it now" in founding.refusal(Parts(QUORUM))


def test_the_head_says_that_a_founded_cluster_cannot_be_up_with_another_quorum(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "ca.pem").write_text(Keys(tmp_path / "keys").authority())

    async def asked(layout: Layout) -> Done:
        settings = AgentSettings(number=1, address="127.0.0.1", port=1)
        calls = HeadCalls(home, Head(home, settings, Agents(home, SecretStr("s"))))
        return await calls.may(Want(layout=layout, up=True))

    assert asyncio.run(asked(ALONE)).ok
    Founding(home).note({1, 2, 3}, Parts(QUORUM))
    assert asyncio.run(asked(QUORUM)).ok
    refused = asyncio.run(asked(ALONE))
    assert not refused.ok
    assert refused.text.endswith(
        "put that back, the quorum of a cluster stays as it was founded "
        "(another one: pbdeploy backup, down --wipe, up, restore)"
    )
