"""The agent's parts: files, the launcher, who is let in; and what `up` puts on nodes."""

import asyncio
import io
import json
import ssl
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from pydantic import SecretStr
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from controller import subnets
from controller.agent import api, files, launch
from controller.agent.home import Home
from controller.agent.messages import Ask, Done, Message
from controller.head.calls import Agents, Unanswered
from deploy import wheel
from deploy.certificates import Keys


def test_a_file_is_told_as_a_diff_and_only_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "conf" / "zoo.cfg"
    assert files.write(path, "a=1\nb=2\n").splitlines()[-2:] == ["+a=1", "+b=2"]
    assert files.write(path, "a=1\nb=2\n") == ""
    assert files.write(path, "a=1\nb=3\n").splitlines()[2:] == ["@@ -1,2 +1,2 @@", " a=1", "-b=2", "+b=3"]
    assert [each.name for each in path.parent.iterdir()] == ["zoo.cfg"]


def test_what_only_the_owner_may_read_is_in_no_diff(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    assert files.write(path, "s3cret\n", 0o600) == f"{path}: changed\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_launcher_ends_what_an_earlier_process_has_left_and_begins_only_once(tmp_path: Path) -> None:
    program, begins = tmp_path / "it.program", tmp_path / "it.begins"
    mark = f"{tmp_path}/it"
    script = "echo $0; setsid sleep 1000 & sleep 1000"
    program.write_text(
        json.dumps(
            {
                "command": ["sh", "-c", script, "usual"],
                "beginning": ["sh", "-c", script, "first"],
                "environment": {},
                "directory": str(tmp_path),
                "log": str(tmp_path / "it.log"),
                "mark": mark,
                "digest": "d1",
            }
        )
    )
    begins.touch()
    command = [sys.executable, "-m", "controller.agent.launch", str(program), str(begins)]
    log = tmp_path / "it.log"
    try:
        for said in ("first\n", "first\nusual\n"):
            process = subprocess.Popen(command)
            deadline = time.monotonic() + 20
            while not log.exists() or log.read_text() != said or len(launch.marked(mark)) != 3:
                assert time.monotonic() < deadline, (log.exists() and log.read_text(), launch.marked(mark))
                time.sleep(0.02)
            process.kill()
            process.wait()
            assert len(launch.marked(mark)) == 2, "its children have outlived it"
    finally:
        launch.end(str(tmp_path), below=True)
    assert launch.marked(mark) == []


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """With the certificate of a loopback address, which is in `address`."""
    keys, made = Keys(tmp_path / "keys"), Home(tmp_path / "node1")
    address = subnets.hosts(subnets.free(), 1)[0]
    certificate, key = keys.of_node(address)
    made.agent.mkdir(parents=True)
    texts = {"ca.pem": keys.authority(), "cert.pem": certificate, "key.pem": key, "address": address}
    for name, text in texts.items():
        (made.agent / name).write_text(text)
    return made


async def answer(asked: Message) -> Done:
    return Done(ok=True, text=type(asked).__name__)


def test_only_who_knows_the_secret_is_answered(home: Home) -> None:
    async def play() -> None:
        address = (home.agent / "address").read_text()
        server = api.server(api.application({"facts": (Ask, answer)}, SecretStr("right")), home)
        server.listen(0, address)
        port = next(iter(server._sockets.values())).getsockname()[1]
        done = await Agents(home, SecretStr("right")).call(address, port, "facts", Ask(), Done, 5)
        assert done == Done(ok=True, text="Ask")
        with pytest.raises(Unanswered, match="the secret is not this cluster's"):
            await Agents(home, SecretStr("wrong")).call(address, port, "facts", Ask(), Done, 5)
        with pytest.raises(Unanswered, match="Extra inputs are not permitted"):
            await Agents(home, SecretStr("right")).call(address, port, "facts", Done(ok=True), Done, 5)
        with pytest.raises((ssl.SSLError, OSError, HTTPClientError)):
            await AsyncHTTPClient().fetch(f"https://{address}:{port}/facts", method="POST", body="{}")
        server.stop()

    asyncio.run(play())


def test_keys_are_kept_and_for_the_owner_alone(tmp_path: Path) -> None:
    first = Keys(tmp_path / "shop.pbdeploy")
    made = (first.secret(), first.authority(), first.of_node("10.0.0.1"), first.of_node("db.example"))
    second = Keys(tmp_path / "shop.pbdeploy")
    assert made == (second.secret(), second.authority(), second.of_node("10.0.0.1"), second.of_node("db.example"))
    assert {each.stat().st_mode & 0o777 for each in (tmp_path / "shop.pbdeploy").iterdir()} == {0o600}
    assert (tmp_path / "shop.pbdeploy").stat().st_mode & 0o777 == 0o700


def test_the_package_for_nodes_is_whole_and_the_same_every_time() -> None:
    content = wheel.made()
    names = set(zipfile.ZipFile(io.BytesIO(content)).namelist())
    assert {"controller/agent/__main__.py", "adapters/hbase/thrift2.thrift", "deploy/layouts/mysql.toml"} <= names
    assert not any(name.endswith(".pyc") for name in names)
    assert wheel.made() == content
