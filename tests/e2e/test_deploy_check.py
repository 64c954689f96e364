"""`pbdeploy init` and `check` with a real sshd: what is asked, what is said, and what is not let in."""

import getpass
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sshd import Sshd, public, write_key

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    directory = tmp_path / "sshd"
    directory.mkdir()
    with Sshd(directory) as running:
        yield running


def pbdeploy(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=60)


def layout(tmp_path: Path, sshd: Sshd, **changed: object) -> Path:
    values: dict[str, object] = {
        "address": sshd.host,
        "user": getpass.getuser(),
        "port": sshd.port,
        "key": sshd.key,
        "known_hosts": sshd.known_hosts,
        "pbserver": 10001,
        **changed,
    }
    file = tmp_path / "cluster.toml"
    file.write_text(
        f'name = "shop"\ndatabase = "mongodb"\ndirectory = "{tmp_path.parent}/cluster"\n'
        '[ssh]\nuser = "{user}"\nport = {port}\nkey = "{key}"\nknown_hosts = "{known_hosts}"\nconnect_seconds = 2\n'
        "[ports]\npbserver = {pbserver}\n"
        '[[nodes]]\naddress = "{address}"\nroles = ["peer"]\n'.format(**values)
    )
    return file


def test_a_machine_that_will_do_is_fine_and_nothing_is_left_on_it(tmp_path: Path, sshd: Sshd) -> None:
    done = pbdeploy("check", str(layout(tmp_path, sshd)), "--json")
    found = json.loads(done.stdout)
    problems = [each["text"] for each in found["problems"]]
    if os.geteuid() != 0:
        problems = [each for each in problems if "not root" not in each]
    assert problems == []
    assert found["entry_points"] == [f"{sshd.host}:10001"]
    assert not (tmp_path.parent / "cluster").exists()


def test_a_port_that_is_taken_is_named_with_who_has_it(tmp_path: Path, sshd: Sshd) -> None:
    with socket.create_server((sshd.host, 0)) as taken:
        port = taken.getsockname()[1]
        done = pbdeploy("check", str(layout(tmp_path, sshd, pbserver=port)))
    assert done.returncode == 1
    assert f"error: {sshd.host}: port {port}, for pbserver, is taken by " in done.stdout
    assert f"(pid {os.getpid()})" in done.stdout


def test_a_port_that_is_taken_on_another_address_is_free(tmp_path: Path, sshd: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        port = elsewhere.getsockname()[1]
        done = pbdeploy("check", str(layout(tmp_path, sshd, pbserver=port)))
    assert f"port {port}" not in done.stdout


def test_who_is_not_let_in_is_told_why(tmp_path: Path, sshd: Sshd) -> None:
    stranger = tmp_path / "stranger"
    write_key(stranger)
    other = tmp_path / "other_hosts"
    other.write_text(f"[{sshd.host}]:{sshd.port} {public(stranger)}")
    empty = tmp_path / "no_hosts"
    empty.write_text("")
    garbage = tmp_path / "garbage"
    garbage.write_text("no key")
    with socket.create_server((sshd.host, 0)) as silent:
        wrong: list[tuple[dict[str, object], str]] = [
            ({"key": stranger}, "not let in with the key"),
            ({"known_hosts": other}, "its host key is not the one in"),
            ({"known_hosts": empty}, "accept it once by `ssh -p 2222"),
            ({"known_hosts": tmp_path / "nowhere"}, "accept it once by `ssh -p 2222"),
            ({"key": tmp_path / "nowhere"}, "there is no private key"),
            ({"key": garbage}, "cannot be used"),
            ({"port": 1}, "port 1: "),
            ({"port": silent.getsockname()[1]}, "no answer within 2 s"),
            ({"address": "no-such-host.invalid"}, "the name cannot be resolved"),
        ]
        for changed, text in wrong:
            done = pbdeploy("check", str(layout(tmp_path, sshd, **changed)))
            assert done.returncode == 1, changed
            (line,) = [each for each in done.stdout.splitlines() if each.startswith("error: ")]
            assert text in line
            assert done.stderr == ""


def test_init_writes_a_layout_that_check_takes_and_overwrites_nothing(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    assert pbdeploy("init", "cassandra", "--output", str(file)).returncode == 0
    done = pbdeploy("check", str(file), "--offline")
    assert (done.returncode, done.stderr) == (0, "")
    assert "shop: cassandra on 3 nodes, 3 copies of every row" in done.stdout
    file.write_text(file.read_text().replace("replication = 3", "replication = 4"))
    kept = file.read_text()
    done = pbdeploy("check", str(file))
    assert done.returncode == 2
    assert done.stderr == f"pbdeploy: {file}: replication is 4, but 3 nodes keep data; lower it or add nodes\n"
    assert pbdeploy("init", "hbase", "--output", str(file)).returncode == 2
    assert file.read_text() == kept


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read"),
        ("name = ", "is not TOML"),
        ('name = "shop"\n', "database: field required"),
    ],
)
def test_what_is_no_layout_is_refused_in_a_line_for_each_reason(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "cluster.toml"
    if text is not None:
        file.write_text(text)
    done = pbdeploy("check", str(file))
    assert done.returncode == 2
    assert said in done.stderr
    assert all(line.startswith("pbdeploy: ") for line in done.stderr.splitlines())
    assert "Traceback" not in done.stderr
