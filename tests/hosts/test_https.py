"""A gateway that speaks HTTPS, with a certificate of the operator's."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy.certificates import Keys
from tests.e2e.wire import Wire, entity, key
from tests.hosts.site import Site, site


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the certificate is, and with it the authority that signed it."""
    return tmp_path_factory.mktemp("operators")


@pytest.fixture(scope="module")
def shop(operators: Path) -> Iterator[Site]:
    with site("mongodb", ["peer"]) as made:
        keys = Keys(operators)
        keys.of_node(made.hosts[0].address)
        with made.layout.open("a") as layout:
            layout.write("[tls]\n")
            for name, kind in {"certificate": "pem", "key": "key"}.items():
                layout.write(f"{name} = {json.dumps(str(operators / f'{made.hosts[0].address}.{kind}'))}\n")
        made.raise_()
        yield made


def test_apps_are_served_by_whom_they_can_prove(shop: Site, operators: Path) -> None:
    (host,) = shop.hosts
    named = key(b"Kind", b"name")
    with Wire(10001, host.address, ssl.create_default_context(cafile=str(operators / "ca.pem"))) as wire:
        wire.put(entity(named, number=7))
        assert wire.get(named) == [entity(named, number=7)]
    with Wire(10001, host.address, ssl.create_default_context()) as stranger, pytest.raises(httpx.ConnectError):
        stranger.get(named)
    plain = httpx.get(f"http://{host.address}:10001")
    assert (plain.status_code, "speaks TLS" in plain.text) == (400, True)


def test_who_asks_for_the_entry_points_is_told_how_to_speak(shop: Site) -> None:
    place = f"{shop.hosts[0].address}:10001"
    assert shop.told("status")["whole"]
    assert shop.pbdeploy("entrypoints", str(shop.layout)).stdout.split() == [f"https://{place}"]
    assert shop.told("entrypoints") == [f"https://{place}"]
    assert "ssl" in shop.pbdeploy("entrypoints", str(shop.layout), "--haproxy").stdout


def test_the_private_key_is_for_its_own_alone(shop: Site) -> None:
    key_file = shop.home(1) / "agent" / "gateway.key"
    assert key_file.stat().st_mode & 0o077 == 0
