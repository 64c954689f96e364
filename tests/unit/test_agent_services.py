"""A node's services under a real supervisord."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.agent import facts, services
from controller.agent.home import Home
from controller.agent.services import ServiceError
from tests.e2e.server import wait_until

_SUPERVISORD = """[unix_http_server]
file={home}/run/supervisor.sock
[supervisord]
nodaemon=true
logfile=/dev/null
logfile_maxbytes=0
pidfile={home}/run/supervisord.pid
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[include]
files={home}/conf/services.conf
"""
_SERVICE = """[program:sleeper]
command=sleep 1000
autostart=false
stdout_logfile=NONE
redirect_stderr=true
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    for name in ("agent", "run", "conf", "log"):
        (tmp_path / name).mkdir()
    return Home(tmp_path)


@pytest.fixture
def supervised(home: Home) -> Iterator[Home]:
    """Its supervisord was started before there was any service."""
    conf = home.agent / "supervisord.conf"
    conf.write_text(_SUPERVISORD.format(home=home.directory))
    command = [sys.executable, "-m", "supervisor.supervisord", "-c", str(conf)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: home.supervisor.exists() or process.poll() is not None, "supervisord")
            assert process.poll() is None
            yield home
        finally:
            process.terminate()


def _write_files(home: Home) -> None:
    """As the preparing task leaves them."""
    home.services.write_text(_SERVICE)
    home.written.write_text("layout 2")


def test_a_node_is_prepared_once_its_services_can_be_started(supervised: Home) -> None:
    _write_files(supervised)
    assert facts.gather(supervised, None).prepared == ""
    with pytest.raises(ServiceError, match="BAD_NAME"):
        services.start(supervised, "sleeper", begins=False)
    services.adopt(supervised)
    found = facts.gather(supervised, None)
    assert (found.prepared, [*found.services]) == ("layout 2", ["sleeper"])
    services.start(supervised, "sleeper", begins=False)
    assert services.states(supervised)["sleeper"].state == "RUNNING"


def test_a_node_whose_supervisord_does_not_answer_is_not_prepared(home: Home) -> None:
    _write_files(home)
    with pytest.raises(ServiceError, match="does not answer"):
        services.adopt(home)
    assert not home.prepared.exists()
