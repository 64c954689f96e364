"""A store's content on its way between a gateway and pbdeploy, over a real sshd."""

import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from adapters.build import open_store
from adapters.contract import OrderedStore
from controller.hosts import moving, ssh
from controller.hosts.ssh import Unreachable
from controller.layout import Ssh
from pbserver.moving import dump_file
from pbserver.moving.dump_file import DumpFile
from pbserver.moving.records import CannotMove
from tests.sshd import Sshd
from tests.unit.moved_worlds import IDENTITY, STORES, assert_right, filled, of, opened

SECONDS = 60


@pytest.fixture
def source() -> OrderedStore:
    store = open_store("memory:")
    filled(store)
    return store


@pytest.fixture
def dumped(source: OrderedStore) -> bytes:
    stream = BytesIO()
    moving.dump(source, stream)
    return stream.getvalue()


@pytest.mark.parametrize("url", STORES)
def test_all_of_a_store_arrives_in_another_one(url: str, tmp_path: Path, source: OrderedStore, dumped: bytes) -> None:
    with opened(url, tmp_path) as target:
        moving.load(target, BytesIO(dumped), IDENTITY)
        assert_right(source, target)
        with pytest.raises(CannotMove, match="the target holds data already"):
            moving.load(target, BytesIO(dumped), IDENTITY)


def test_what_arrives_makes_the_same_file_as_a_dump_of_the_store(
    tmp_path: Path, source: OrderedStore, dumped: bytes
) -> None:
    dump_file.write(tmp_path / "here", of(source).records())
    dump_file.write(tmp_path / "there", moving.Received(BytesIO(dumped)).records())
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def test_a_stream_that_is_cut_or_damaged_is_found_out_and_the_next_one_goes_on(
    source: OrderedStore, dumped: bytes
) -> None:
    target = open_store("memory:")
    middle = len(dumped) // 2
    for broken in (dumped[:middle], dumped[:-9], dumped[:-8] + b"\0\0\0\0" + dumped[-4:], b"", b"no stream"):
        with pytest.raises(moving.BROKEN):
            moving.load(target, BytesIO(broken), IDENTITY)
    with pytest.raises(CannotMove, match="unfinished restore"):
        moving.dump(target, BytesIO())
    with pytest.raises(CannotMove, match="unfinished copy of another source"):
        moving.load(target, BytesIO(dumped), b"another")
    moving.load(target, BytesIO(dumped), IDENTITY)
    assert_right(source, target)


def test_an_empty_store_is_not_dumped() -> None:
    with pytest.raises(CannotMove, match="holds no app's data yet"):
        moving.dump(open_store("memory:"), BytesIO())


@pytest.fixture
def reached(tmp_path: Path) -> Iterator[tuple[str, Ssh]]:
    with Sshd(tmp_path / "sshd") as sshd:
        yield sshd.host, Ssh(port=sshd.port, key=sshd.key, known_hosts=sshd.known_hosts)  # type: ignore[call-arg]


def settings(directory: Path, name: str) -> Path:
    path = directory / f"{name}.toml"
    path.write_text(f'store = "lmdb:{directory / name}?durability=none"\n')
    return path


def command(what: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", "controller.hosts.moving", what, *map(str, arguments)]


def test_a_store_goes_over_ssh_and_back_into_another_one(tmp_path: Path, reached: tuple[str, Ssh]) -> None:
    with opened("lmdb:", tmp_path / "from") as store:
        filled(store)
    file = tmp_path / "dump"
    trailer = ssh.receive(
        command("dump", settings(tmp_path, "from")),
        *reached,
        lambda stream: dump_file.write(file, moving.Received(stream).records()),
        SECONDS,
    )
    assert trailer.entities == DumpFile(file).trailer.entities > 0
    load = command("load", settings(tmp_path, "to"), trailer.sha256.hex())
    ssh.send(load, *reached, lambda stream: moving.write(stream, DumpFile(file).records()), SECONDS)
    with opened("lmdb:", tmp_path / "from") as one, opened("lmdb:", tmp_path / "to") as other:
        assert_right(one, other)
    with pytest.raises(Unreachable, match=r"\Athe target holds data already, of "):
        ssh.send(load, *reached, lambda stream: moving.write(stream, DumpFile(file).records()), SECONDS)


def test_the_commands_own_words_are_told_not_what_they_lead_to_here(tmp_path: Path, reached: tuple[str, Ssh]) -> None:
    def endless(stream: object) -> None:
        while True:
            stream.write(bytes(1 << 16))  # type: ignore[attr-defined]

    with pytest.raises(Unreachable, match=r"\Aover\Z"):
        ssh.send(["sh", "-c", "echo over >&2; exit 3"], *reached, endless, SECONDS)
    with pytest.raises(Unreachable, match=r"\Aover\Z"):
        ssh.receive(["sh", "-c", "echo over >&2; exit 3"], *reached, lambda stream: 1 / len(stream.read()), SECONDS)
    with pytest.raises(Unreachable, match=r"\Anot done within 1 s\Z"):
        ssh.receive(["sleep", "100"], *reached, lambda stream: stream.read(), 1)


def test_what_fails_here_ends_the_command_there(tmp_path: Path, reached: tuple[str, Ssh]) -> None:
    del tmp_path
    with pytest.raises(ZeroDivisionError):
        ssh.receive(["cat", "/dev/zero"], *reached, lambda stream: 1 / len(stream.read(0)), SECONDS)
