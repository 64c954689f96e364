"""Logs of services do not grow for ever."""

import os
from pathlib import Path

import pytest

from controller.agent import services
from controller.agent.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Of a node with two services."""
    made = Home(tmp_path)
    for directory in (made.log, made.prepared.parent):
        directory.mkdir()
    for service in ("mariadbd", "pbserver"):
        made.program(service).touch()
    return made


def test_a_log_that_is_too_long_is_put_aside_while_its_service_goes_on_writing(home: Home) -> None:
    long, short = home.log / "mariadbd.log", home.log / "pbserver.log"
    short.write_text("serves\n")
    output = os.open(long, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for turn in (b"1", b"2"):
        os.write(output, turn * (services.MOST_LOG_BYTES + 1))
        services.shorten_logs(home)
        os.write(output, b"after")
        assert long.read_bytes() == b"after"
        assert len((home.log / "mariadbd.log.1").read_bytes().strip(b"after" + turn)) == 0
        services.shorten_logs(home)
        assert long.read_bytes() == b"after"
        os.truncate(long, 0)
    os.close(output)
    assert sorted(each.name for each in home.log.iterdir()) == ["mariadbd.log", "mariadbd.log.1", "pbserver.log"]
    assert short.read_text() == "serves\n"


def test_a_service_that_never_ran_has_no_log_to_look_after(home: Home) -> None:
    services.shorten_logs(home)
    assert [*home.log.iterdir()] == []
