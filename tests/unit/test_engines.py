"""Fetching engines: what is asked of the package tools, what is accepted, and how it appears in the directory."""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest

from controller.engines import debian, golang, java, maven, private
from controller.engines.catalog import ENGINES, Engine
from controller.engines.maven import Artifacts, Jars
from controller.engines.tools import EngineError, run
from controller.progress import Report

JARS = {name: engine.source for name, engine in ENGINES.items() if isinstance(engine.source, Jars)}

SIMULATED = """Reading package lists...
Inst libaio1 (0.3.113-4 Debian:12.11/stable [amd64])
Inst libc6 [2.36-9+deb12u9] (2.36-9+deb12u10 Debian:12.11/stable [amd64])
Inst galera-4 (26.4.23-0+deb12u1 Debian-Security:12/stable-security [amd64])
Conf libaio1 (0.3.113-4 Debian:12.11/stable [amd64])
"""

UNEQUAL = [
    ("one is missing", {}, "a.jar is missing"),
    ("one more", {"a.jar": "1", "b.jar": "2"}, "b.jar is not in the list"),
    ("another sum", {"a.jar": "2"}, "a.jar has the sum 2, not 1"),
]


@dataclass
class Slow:
    """A source that takes its time; `installs` counts how often it was asked."""

    fails: bool = False
    installs: list[Path] = field(default_factory=list)

    def install(self, directory: Path, needs: Mapping[str, Path], report: Report) -> dict[str, str]:
        self.installs.append(directory)
        (directory / "first").touch()
        time.sleep(0.2)
        if self.fails:
            raise EngineError("the registry is away")
        (directory / "last").touch()
        return {"part": "1"}


def engine(source: Slow) -> Engine:
    return Engine("1", source, ("first", "last"))


@pytest.mark.parametrize("name", JARS)
def test_every_jar_of_an_engine_has_a_sum(name: str) -> None:
    jars = maven.read_lock(name)
    assert all(len(digest) == 64 for digest in jars.values())
    for artifacts in JARS[name].wanted:
        assert {f"{artifact}-{artifacts.version}.jar" for artifact in artifacts.names} <= jars.keys()
    for pattern in ENGINES[name].evidence:
        if pattern.startswith("lib/"):
            assert any(Path("lib", jar).match(pattern) for jar in jars)


def test_the_project_asks_for_artifacts_and_pins_versions() -> None:
    text = maven.project("x", [Artifacts("g", "1", ("a", "b"))], [Artifacts("h", "2", ("c",))])
    root = ElementTree.fromstring(text)

    def found(path: str) -> list[list[str | None]]:
        return [[part.text for part in dependency] for dependency in root.findall(path)]

    assert found("dependencies/dependency") == [["g", "a", "1"], ["g", "b", "1"]]
    assert found("dependencyManagement/dependencies/dependency") == [["h", "c", "2"]]


@pytest.mark.parametrize(("found", "message"), [each[1:] for each in UNEQUAL], ids=[each[0] for each in UNEQUAL])
def test_other_jars_than_the_listed_are_refused(found: dict[str, str], message: str) -> None:
    with pytest.raises(EngineError, match=rf"controller/engines/locks/x\.sha256:\n  {message}"):
        maven.compare("x", {"a.jar": "1"}, found)


def test_the_listed_jars_are_accepted() -> None:
    maven.compare("x", {"a.jar": "1"}, {"a.jar": "1"})


def test_packages_of_the_system_are_not_replaced_beside_it() -> None:
    assert debian.newly_installed(SIMULATED) == ["libaio1", "galera-4"]


def test_a_package_of_another_series_is_refused() -> None:
    debian.check_series({"mariadb": "1:10.11."}, {"mariadb": "1:10.11.19-0+deb12u1", "rsync": "3"})
    with pytest.raises(EngineError, match=r"mariadb is 1:11\.8\.2, but 1:10\.11\.\* is needed\. .* --use PATH"):
        debian.check_series({"mariadb": "1:10.11."}, {"mariadb": "1:11.8.2"})


def test_absolute_links_of_packages_lead_into_the_directory(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "usr" / "bin").mkdir(parents=True)
    (tree / "usr" / "bin" / "tool").write_text("inside")
    (tree / "etc").mkdir()
    (tree / "etc" / "tool").symlink_to("/usr/bin/tool")
    (tree / "etc" / "null").symlink_to("/dev/null")
    debian.relink(tree)
    moved = tree.rename(tmp_path / "moved")
    assert (moved / "etc" / "tool").read_text() == "inside"
    assert (moved / "etc" / "null").readlink() == Path("/dev/null")


@pytest.mark.parametrize(
    ("version", "enough"),
    [("go1.24", True), ("go1.26.8", True), ("go2.0", True), ("go1.19.8", False), ("devel +abc", False), ("", False)],
)
def test_only_a_go_that_is_new_enough_is_used(version: str, enough: bool) -> None:
    assert golang.new_enough(version) is enough


def test_a_tool_that_fails_says_what_it_printed(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"sh -c echo why; exit 3 failed with 3:\nwhy"):
        run(["sh", "-c", "echo why; exit 3"], tmp_path)


def test_the_private_directory_is_in_the_users_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert private.default_directory() == Path("/data/pbserver/engines")
    monkeypatch.setenv("XDG_DATA_HOME", "")
    monkeypatch.setenv("HOME", "/home/me")
    assert private.default_directory() == Path("/home/me/.local/share/pbserver/engines")


def test_an_unknown_engine_is_refused_with_the_known(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"unknown engine 'voldemort'; known engines: .*zookeeper"):
        private.fetch("voldemort", tmp_path)


def test_an_engine_that_was_not_fetched_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=f"cassandra is not in {tmp_path}: pbdeploy engines fetch cassandra"):
        private.locate("cassandra", tmp_path)


def test_two_who_fetch_at_once_get_one_complete_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Slow()
    monkeypatch.setitem(ENGINES, "slow", engine(source))
    seen: list[bool] = []

    def fetch() -> None:
        where = private.fetch("slow", tmp_path)
        seen.append((where / "last").exists())

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 4
    assert len(source.installs) == 1
    assert json.loads((private.locate("slow", tmp_path) / "installed.json").read_text()) == {"part": "1"}


def test_a_fetch_that_fails_leaves_nothing_and_may_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "slow", engine(Slow(fails=True)))
    with pytest.raises(EngineError, match="the registry is away"):
        private.fetch("slow", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    monkeypatch.setitem(ENGINES, "slow", engine(Slow()))
    assert private.fetch("slow", tmp_path) == tmp_path / "slow-1"


def test_the_operators_copy_is_used_if_it_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Slow()
    monkeypatch.setitem(ENGINES, "slow", engine(source))
    private.fetch("slow", tmp_path)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "first").touch()
    with pytest.raises(EngineError, match=f"{copy} is no 1 engine: it has no last"):
        private.fetch("slow", tmp_path, use=copy)
    (copy / "last").touch()
    assert private.fetch("slow", tmp_path, use=copy).resolve() == copy
    assert private.fetch("slow", tmp_path).resolve() == copy
    assert len(source.installs) == 1


@pytest.mark.parametrize(
    ("said", "accepted"),
    [
        ("openjdk 17.0.15 2025-04-15", True),
        ("java 17 2021-09-14 LTS", True),
        ("openjdk 25.0.1 2025-10-21", False),
        ("openjdk 1.17", False),
    ],
)
def test_only_java_17_is_accepted(said: str, accepted: bool, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{said}'\necho more\n")
    program.chmod(0o755)
    if accepted:
        java.check(tmp_path)
    else:
        with pytest.raises(EngineError, match=f"Java 17 is needed, .* {tmp_path} is {said}$"):
            java.check(tmp_path)
