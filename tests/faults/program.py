"""`pbserver` as an operator calls it, waited for until it ends."""

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.server import ROOT
from tests.e2e.wire import APP


def ended(*arguments: object, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PBSERVER_")}
    command = [sys.executable, "-m", "pbserver", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )


def serving(store: Path) -> list[str]:
    return ["serve", "--listen", "127.0.0.1:0", "--admin", "none", "--workers", "2", "--store", f"lmdb:{store}"]


def refused_start(store: Path) -> str:
    """The one line with which a server refuses to serve a place."""
    served = ended(*serving(store))
    assert served.returncode == 1, served
    assert served.stdout == ""
    (line,) = served.stderr.splitlines()
    return line


def verified(store: Path, *more: object) -> subprocess.CompletedProcess[str]:
    return ended("verify", "--store", f"lmdb:{store}", "--app", APP.decode(), *more)
