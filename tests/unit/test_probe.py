"""What a machine says of itself; here it is this one."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from controller.hosts import probe
from controller.hosts.facts import PROGRAM, Facts, request


@pytest.mark.parametrize(("address", "its"), [("127.0.0.1", True), ("203.0.113.9", False), ("no.invalid", False)])
def test_an_address_is_this_machines_or_another_ones(address: str, its: bool) -> None:
    assert probe.has(address) is its


@pytest.mark.parametrize(
    ("digits", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("00000000000000000000000001000000", "::1"),
        ("0000000000000000FFFF00000100007F", "127.0.0.1"),
        ("B80D0120000000000000000001000000", "2001:db8::1"),
    ],
)
def test_the_kernels_addresses_are_read(digits: str, address: str) -> None:
    assert probe.read_address(digits) == address


def test_who_listens_is_found_on_the_address_that_was_asked_about(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = request([tmp_path / "not" / "there"], {port: "127.0.0.1"}, "127.0.0.1")
        done = subprocess.run(
            [sys.executable, "-", text], input=PROGRAM, capture_output=True, text=True, check=True, env={"PATH": ""}
        )
        found = Facts.parsed(done.stdout, asked=0, answered=1e12)
        assert found.taken[port].endswith(f"(pid {os.getpid()})")
        assert found.java is None
        assert found.free_mib[str(tmp_path / "not" / "there")] > 0
        assert found.python == sys.version_info[:3]
        assert probe.listening({str(port): "127.0.0.2"}) == {}
    assert probe.listening({str(port): "127.0.0.1"}) == {}
    assert json.loads(text)["address"] == "127.0.0.1"
