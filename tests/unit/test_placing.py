"""What is put on nodes: what a node's `boot` does, and what its gateway speaks HTTPS with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from controller.agent.parts import Parts
from controller.layout import Layout
from controller.recipe import ClusterError
from deploy import placing
from deploy.certificates import Keys
from tests.unit.test_layout import made


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A certificate and its key, as a layout names them."""
    certificate, key = Keys(tmp_path / "keys").of_node("10.0.0.1")
    (tmp_path / "cert.pem").write_text(certificate)
    (tmp_path / "key.pem").write_text(key)
    return {"certificate": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}


def placed(layout: Layout, directory: Path) -> list[placing.Placed]:
    return [*placing.wanted(layout, Keys(directory / "shop.pbdeploy")).values()]


def test_gateways_get_the_certificate_and_settings_that_name_it_and_other_nodes_do_not(
    files: dict[str, str], tmp_path: Path
) -> None:
    layout = made("cassandra", "peer+gateway", "peer", tls=files, python="/usr/bin/python3")
    gateway, other = placed(layout, tmp_path)
    for name, file in (("gateway.pem", files["certificate"]), ("gateway.key", files["key"])):
        assert gateway.texts[name] == Path(file).read_text()
        assert name not in other.texts
    parts = Parts(layout)
    (settings,) = parts.gateways.files(parts.nodes[1], parts.cluster()).values()
    assert 'tls_cert = "/var/lib/pbserver/shop/node1/agent/gateway.pem"\n' in settings
    assert 'tls_key = "/var/lib/pbserver/shop/node1/agent/gateway.key"\n' in settings
    plain = made("cassandra", "peer+gateway", "peer", python="/usr/bin/python3")
    assert placed(plain, tmp_path)[0].digest != gateway.digest


@pytest.mark.parametrize("wrong", ["not there", "nonsense", "of another certificate"])
def test_files_that_do_not_belong_together_are_refused(wrong: str, files: dict[str, str], tmp_path: Path) -> None:
    key = Path(files["key"])
    if wrong == "not there":
        key.unlink()
    else:
        key.write_text(wrong if wrong == "nonsense" else Keys(tmp_path / "others").of_node("10.0.0.1")[1])
    with pytest.raises(ClusterError, match=r"tls.certificate .*cert\.pem and tls\.key .*key\.pem cannot be used: "):
        placing.gateway_keys(made("cassandra", "peer", tls=files))


def test_a_boot_that_cannot_load_the_firewalls_rules_starts_nothing(tmp_path: Path) -> None:
    """The program that would be started says so."""
    layout = made("cassandra", "peer", directory=str(tmp_path), python=sys.executable)
    (node,) = layout.every_node()
    node.directory.mkdir(parents=True)
    boot = placed(layout, tmp_path)[0].texts["boot"].replace("-m supervisor.supervisord -c", "-c 'print(7)'")

    def said() -> tuple[int, str]:
        done = subprocess.run(["sh", "-c", boot], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert said() == (0, "7\n")
    kept = {"table": "pbserver_nowhere", "rules": dict.fromkeys(["nft", "iptables", "ip6tables"], "nonsense")}
    (node.directory / "firewall.json").write_text(json.dumps(kept))
    assert said() == (1, "")
