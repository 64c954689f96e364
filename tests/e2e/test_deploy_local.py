"""`pbdeploy local` where PBServer cannot serve; where it can: tests/clusters/test_mysql.py."""

import subprocess
import sys
from pathlib import Path

from controller.local import LocalCluster
from tests.e2e.server import ROOT


def test_a_database_without_an_adapter_is_booted_without_a_pbserver(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deploy", "local", "up", "zookeeper", "--nodes", "1", "--dir", str(tmp_path)]
    up = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    try:
        assert up.returncode == 0, up.stderr
        assert up.stderr.splitlines()[-1] == "no PBServer: there is no adapter for zookeeper yet"
        cluster = LocalCluster(tmp_path)
        assert cluster.pbserver_urls() == {}
        assert [(status.running, status.trouble) for status in cluster.status()] == [(("zookeeper",), "")]
    finally:
        LocalCluster(tmp_path).down()
