"""Recipes: what each node is told, what runs there and in which order, as data."""

import inspect
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from jinja2 import UndefinedError

from adapters.cassandra.nodes import parse_place
from adapters.url import parse_url
from controller import databases
from controller.databases import hbase, mysql, quorum
from controller.engines.catalog import ENGINES
from controller.recipe import Cluster, ClusterError, Node, Recipe
from controller.rendering import render

HOSTS = ["127.7.7.1", "127.7.7.2", "127.7.7.3"]
EVERYWHERE = (1, 2, 3)

STAGES = {
    "zookeeper": [("zookeeper", EVERYWHERE)],
    "cassandra": [("cassandra", (1,)), ("cassandra", (2,)), ("cassandra", (3,))],
    "mysql": [("mariadbd", (1,)), ("mariadbd", (2, 3))],
    "mongodb": [("ferretdb", (1,))],
    "hbase": [
        ("zookeeper", (1,)),
        ("namenode", (1,)),
        ("datanode", EVERYWHERE),
        ("master", (1,)),
        ("regionserver", EVERYWHERE),
        ("thrift", EVERYWHERE),
    ],
}

URLS = {
    "zookeeper": ["127.7.7.1:2181,127.7.7.2:2181,127.7.7.3:2181"] * 3,
    "cassandra": [
        "cassandra:127.7.7.1:9042,127.7.7.2:9042,127.7.7.3:9042",
        "cassandra:127.7.7.2:9042,127.7.7.3:9042,127.7.7.1:9042",
        "cassandra:127.7.7.3:9042,127.7.7.1:9042,127.7.7.2:9042",
    ],
    "mysql": [
        "mysql:127.7.7.1:3306,127.7.7.2:3306,127.7.7.3:3306/pbserver?user=pbserver",
        "mysql:127.7.7.2:3306,127.7.7.3:3306,127.7.7.1:3306/pbserver?user=pbserver",
        "mysql:127.7.7.3:3306,127.7.7.1:3306,127.7.7.2:3306/pbserver?user=pbserver",
    ],
    "mongodb": ["mongodb:127.7.7.1:27017/pbserver?one_writer=yes"],
    "hbase": [
        "hbase:127.7.7.1:9091,127.7.7.2:9091,127.7.7.3:9091",
        "hbase:127.7.7.2:9091,127.7.7.3:9091,127.7.7.1:9091",
        "hbase:127.7.7.3:9091,127.7.7.1:9091,127.7.7.2:9091",
    ],
}

GRASTATE = """# GALERA saved state
version: 2.1
uuid:    920f0cfa-e5d5-11f1-a46b-ae63d3eeac6c
seqno:   {seqno}
safe_to_bootstrap: {safe}
"""

#: What every node wrote down (None: nothing) -> the number of the one that must begin.
BEGINNERS = [
    ("a new cluster", [None, None, None], 1),
    ("the last to stop", [(7, 0), (8, 0), (9, 1)], 3),
    ("nobody was last, the second knows most", [(7, 0), (9, 0), (8, 0)], 2),
    ("two know as much", [(7, 0), (9, 0), (9, 0)], 2),
    ("the third never joined", [(5, 0), (4, 0), None], 1),
]


def cluster(name: str, directory: Path = Path("/c")) -> Cluster:
    recipe = databases.recipe(name)
    hosts = HOSTS[: recipe.MOST_NODES]
    nodes = tuple(Node(number, host, directory / f"node{number}") for number, host in enumerate(hosts, 1))
    engines = {engine: Path("/e") / engine for engine in recipe.ENGINES}
    return Cluster(nodes, engines, nodes[0])


def properties(text: str) -> dict[str, str]:
    root = ElementTree.fromstring(text)
    return {each.findtext("name", ""): each.findtext("value", "") for each in root.iter("property")}


def hbase_file(name: str, node: int) -> dict[str, str]:
    seen = cluster("hbase")
    return properties(hbase.files(seen.nodes[node - 1], seen)[seen.nodes[node - 1].conf / name])


def test_the_tables_here_name_every_recipe() -> None:
    assert sorted(STAGES) == sorted(URLS) == sorted(databases.NAMES)
    with pytest.raises(ClusterError, match=r"unknown database 'voldemort'; known databases: cassandra, .*zookeeper"):
        databases.recipe("voldemort")


@pytest.mark.parametrize("name", databases.NAMES)
def test_every_recipe_has_the_same_parts(name: str) -> None:
    recipe = databases.recipe(name)
    for part, wanted in inspect.getmembers(Recipe, inspect.isfunction):
        if not part.startswith("_"):
            parameters = [*inspect.signature(wanted).parameters][1:]
            assert [*inspect.signature(getattr(recipe, part)).parameters] == parameters
    assert set(recipe.ENGINES) <= ENGINES.keys()


@pytest.mark.parametrize("name", databases.NAMES)
def test_stages_begin_with_the_masters(name: str) -> None:
    stages = databases.recipe(name).stages(cluster(name))
    assert [(stage.service, tuple(node.number for node in stage.nodes)) for stage in stages] == STAGES[name]


@pytest.mark.parametrize("name", databases.NAMES)
def test_every_service_of_every_node_starts_in_one_stage(name: str) -> None:
    recipe, seen = databases.recipe(name), cluster(name)
    started = sorted((node.number, stage.service) for stage in recipe.stages(seen) for node in stage.nodes)
    described = sorted((node.number, service.name) for node in seen.nodes for service in recipe.services(node, seen))
    assert started == described


@pytest.mark.parametrize("name", databases.NAMES)
def test_every_entry_point_has_a_url(name: str) -> None:
    assert databases.recipe(name).store_urls(cluster(name)) == URLS[name]


@pytest.mark.parametrize("name", databases.NAMES)
def test_a_node_is_bound_to_its_own_address_and_writes_below_its_own_directory(name: str) -> None:
    recipe, seen = databases.recipe(name), cluster(name)
    for node in seen.nodes:
        files = recipe.files(node, seen)
        commands = [" ".join(service.command) for service in recipe.services(node, seen)]
        assert all(path.is_relative_to(node.directory) for path in files)
        everything = "\n".join([*files.values(), *commands])
        assert node.host in everything
        assert "0.0.0.0" not in everything
        assert "localhost" not in everything
        others = [other.directory for other in seen.nodes if other != node]
        assert not any(f"{directory}/" in everything for directory in others)
        assert all(log.is_relative_to(node.log) for log in recipe.log_files(node))


@pytest.mark.parametrize("name", ["zookeeper", "cassandra", "hbase"])
def test_java_services_run_on_the_given_java(name: str) -> None:
    recipe, seen = databases.recipe(name), cluster(name)
    for node in seen.nodes:
        for service in recipe.services(node, seen):
            assert service.command[0] == "/e/java/bin/java"
            assert "-XX:+UseSerialGC" in service.command
            assert f"{node.conf}:/e/{name}/lib/*" in service.command


def test_a_value_that_a_template_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'data' is undefined"):
        render("zoo.cfg.j2", node=cluster("zookeeper").nodes[0], nodes=[], port=1)


def test_one_zookeeper_is_alone_and_several_know_each_other() -> None:
    recipe, seen = databases.recipe("zookeeper"), cluster("zookeeper")
    node = seen.nodes[1]
    together = recipe.files(node, seen)[node.conf / "zoo.cfg"].splitlines()
    assert [line for line in together if line.startswith("server.")] == [
        "server.1=127.7.7.1:2888:3888",
        "server.2=127.7.7.2:2888:3888",
        "server.3=127.7.7.3:2888:3888",
    ]
    assert "clientPortAddress=127.7.7.2" in together
    assert recipe.files(node, seen)[node.data / "myid"] == "2\n"
    alone = recipe.files(node, replace(seen, nodes=(node,)))[node.conf / "zoo.cfg"]
    assert "server." not in alone


def test_cassandras_first_node_is_the_seed_of_all() -> None:
    recipe, seen = databases.recipe("cassandra"), cluster("cassandra")
    for node in seen.nodes:
        described = yaml.safe_load(recipe.files(node, seen)[node.conf / "cassandra.yaml"])
        assert (described["listen_address"], described["rpc_address"]) == (node.host, node.host)
        assert described["seed_provider"][0]["parameters"] == [{"seeds": "127.7.7.1"}]
        assert described["data_file_directories"] == [f"/c/{node.name}/data/data"]


def test_data_nodes_are_told_apart_by_their_ports() -> None:
    assert [hbase_file("hdfs-site.xml", node)["dfs.datanode.address"] for node in EVERYWHERE] == [
        "127.7.7.1:9866",
        "127.7.7.2:9966",
        "127.7.7.3:10066",
    ]
    assert hbase_file("hdfs-site.xml", 3)["dfs.datanode.hostname"] == "127.7.7.3"
    assert hbase_file("hdfs-site.xml", 3)["dfs.replication"] == "3"


@pytest.mark.parametrize(("nodes", "asked", "copies"), [(3, None, "3"), (2, None, "2"), (3, 2, "2"), (3, 1, "1")])
def test_hdfs_keeps_as_many_copies_as_are_asked_for(nodes: int, asked: int | None, copies: str) -> None:
    seen = cluster("hbase")
    seen = replace(seen, nodes=seen.nodes[:nodes], replication=asked)
    for node in seen.nodes:
        found = properties(hbase.files(node, seen)[node.conf / "hdfs-site.xml"])
        assert found["dfs.replication"] == copies


def test_hdfs_gives_up_a_silent_datanode_before_its_regions_move() -> None:
    """Else their log is split, and opened anew, with the silent one among the copies: 20 s more without service."""
    hdfs, found = hbase_file("hdfs-site.xml", 1), hbase_file("hbase-site.xml", 1)
    heartbeat = 1000 * int(hdfs["dfs.heartbeat.interval"])
    recheck = int(hdfs["dfs.namenode.heartbeat.recheck-interval"])
    assert 2 * recheck + 10 * heartbeat < int(found["zookeeper.session.timeout"])
    assert int(hdfs["dfs.namenode.stale.datanode.interval"]) >= 3 * heartbeat, "what the NameNode takes at least"
    assert int(found["hbase.lease.recovery.dfs.timeout"]) > 2 * int(hdfs["dfs.client.socket-timeout"])


def test_cassandras_keyspace_gets_the_replicas_that_are_asked_for() -> None:
    seen = replace(cluster("cassandra"), replication=2)
    for url in databases.recipe("cassandra").store_urls(seen):
        place = parse_place(parse_url(url))
        assert (place.replication, place.keyspace) == (2, "pbserver")


def test_a_cassandra_node_has_the_tokens_that_are_given_and_chooses_others() -> None:
    seen = cluster("cassandra")
    first, second = seen.nodes[:2]
    seen = replace(seen, tokens={first: (-5, 7)})
    found = [
        yaml.safe_load(databases.recipe("cassandra").files(node, seen)[node.conf / "cassandra.yaml"])
        for node in (first, second)
    ]
    assert [(each["num_tokens"], each.get("initial_token")) for each in found] == [(2, "-5,7"), (16, None)]


def test_all_of_hbase_looks_for_the_masters_on_the_first_node() -> None:
    for node in EVERYWHERE:
        assert hbase_file("core-site.xml", node)["fs.defaultFS"] == "hdfs://127.7.7.1:8020"
        assert hbase_file("hbase-site.xml", node)["hbase.zookeeper.quorum"] == "127.7.7.1"
        assert hbase_file("hbase-site.xml", node)["hbase.regionserver.hostname"] == HOSTS[node - 1]


@pytest.mark.parametrize("numbers", [(), (1,), (2,), (1, 2, 3)])
def test_hbases_zookeeper_runs_on_the_keepers_or_beside_the_masters(numbers: tuple[int, ...]) -> None:
    seen = cluster("hbase")
    seen = replace(seen, keepers=tuple(seen.nodes[number - 1] for number in numbers))
    voters = [seen.nodes[number - 1] for number in numbers or (1,)]
    first = hbase.stages(seen)[0]
    assert (first.service, first.check, [*first.nodes]) == ("zookeeper", quorum.serves, voters)
    for node in seen.nodes:
        files = hbase.files(node, seen)
        site = properties(files[node.conf / "hbase-site.xml"])
        assert site["hbase.zookeeper.quorum"] == ",".join(each.host for each in voters)
        assert site["hbase.zookeeper.property.clientPort"] == "2181"
        services = {each.name: each for each in hbase.services(node, seen)}
        keeps = node in voters
        assert ("zookeeper" in services, node.conf / "zoo.cfg" in files) == (keeps, keeps)
        assert (files.get(node.data / "zookeeper" / "myid") == f"{node.number}\n") is keeps
        assert ("master" in services, "namenode" in services) == (node.number == 1, node.number == 1)
        needed = hbase.needs(node, seen)
        taken = {port for port in (2181, 2888, 3888) if port in needed.ports}
        assert taken == ({2181} | ({2888, 3888} if len(voters) > 1 else set()) if keeps else set())
        assert needed.memory_mib == 2 * (512 + 352 * (node.number == 1) + 64 * keeps)


def test_the_voters_of_hbases_quorum_know_each_other_and_keep_what_they_know_apart_from_the_blocks() -> None:
    seen = cluster("hbase")
    node = seen.nodes[1]
    lines = hbase.files(node, replace(seen, keepers=seen.nodes))[node.conf / "zoo.cfg"].splitlines()
    assert [line for line in lines if line.startswith("server.")] == [
        f"server.{number}=127.7.7.{number}:2888:3888" for number in EVERYWHERE
    ]
    assert {"clientPortAddress=127.7.7.2", "dataDir=/c/node2/data/zookeeper"} <= {*lines}


def test_text_in_site_files_is_escaped() -> None:
    text = render("site.xml.j2", properties={"a": "<&>"})
    assert properties(text) == {"a": "<&>"}


@pytest.mark.parametrize(
    ("node", "running", "begins"),
    [(1, (), True), (2, (), False), (1, (2,), False), (3, (1, 2), False)],
    ids=["first of all", "a joiner", "back among others", "a joiner among others"],
)
def test_only_the_first_of_a_galera_cluster_that_is_down_begins_it(
    node: int, running: tuple[int, ...], begins: bool
) -> None:
    seen = cluster("mysql")
    seen = replace(seen, running=frozenset(seen.nodes[number - 1] for number in running))
    (service,) = mysql.services(seen.nodes[node - 1], seen)
    assert ("--wsrep-new-cluster" in service.command) is begins


def test_a_single_mariadb_is_none_of_galera_and_syncs_what_it_commits() -> None:
    seen = cluster("mysql")
    alone = replace(seen, nodes=seen.nodes[:1])
    (service,) = mysql.services(alone.primary, alone)
    assert "--wsrep-new-cluster" not in service.command
    synced = "innodb_flush_log_at_trx_commit=1"
    for view, galera in ((alone, False), (seen, True)):
        text = mysql.files(view.primary, view)[view.primary.conf / "galera.cnf"]
        assert (synced in text, "wsrep" in text) == (not galera, galera)


def test_a_galera_cluster_boots_from_its_primary() -> None:
    seen = cluster("mysql")
    stages = mysql.stages(replace(seen, primary=seen.nodes[1]))
    assert [[node.number for node in stage.nodes] for stage in stages] == [[2], [1, 3]]
    assert len(mysql.stages(replace(seen, nodes=seen.nodes[:1]))) == 1


def test_nodes_come_back_together_to_what_is_left_of_a_galera_cluster() -> None:
    seen = cluster("mysql")
    (stage,) = mysql.stages(replace(seen, running=frozenset(seen.nodes[2:])))
    assert stage.nodes == seen.nodes


@pytest.mark.parametrize(("states", "number"), [each[1:] for each in BEGINNERS], ids=[each[0] for each in BEGINNERS])
def test_the_node_that_knows_most_begins(states: list[tuple[int, int] | None], number: int, tmp_path: Path) -> None:
    seen = cluster("mysql", tmp_path)
    for node, state in zip(seen.nodes, states, strict=True):
        node.data.mkdir(parents=True)
        if state is not None:
            (node.data / "grastate.dat").write_text(GRASTATE.format(seqno=state[0], safe=state[1]))
    chosen = mysql.choose_primary(seen)
    assert chosen.number == number
    for node, state in zip(seen.nodes, states, strict=True):
        if state is not None:
            allowed = mysql.galera_state((node.data / "grastate.dat").read_text()).last_to_stop
            assert allowed is (node == chosen)


def test_what_galera_wrote_down_is_read() -> None:
    assert mysql.galera_state(GRASTATE.format(seqno=-1, safe=0)) == mysql.GaleraState(-1, last_to_stop=False)
    assert mysql.galera_state(GRASTATE.format(seqno=27, safe=1)) == mysql.GaleraState(27, last_to_stop=True)
    assert mysql.galera_state("") == mysql.GaleraState(-1, last_to_stop=False)


def test_only_the_permission_to_begin_and_the_position_are_changed() -> None:
    assert mysql.allowed_to_begin(GRASTATE.format(seqno=-1, safe=0), 27) == GRASTATE.format(seqno=27, safe=1)


@pytest.mark.parametrize(
    ("output", "position"),
    [
        ("[Note] WSREP: Recovered position: 920f0cfa-e5d5-11f1-a46b-ae63d3eeac6c:31\n", 31),
        ("[Note] WSREP: Recovered position: 00000000-0000-0000-0000-000000000000:-1\n", -1),
        ("[ERROR] InnoDB: Plugin initialization aborted\n", -1),
    ],
)
def test_the_recovered_position_is_read(output: str, position: int) -> None:
    assert mysql.recovered_position(output) == position
