"""What the README promises a newcomer."""

import os
import subprocess
import sys

from tests.e2e.server import ROOT, Server

EXAMPLE = ROOT / "examples" / "store.py"


def test_the_first_example_stores_an_entity(production_server: Server) -> None:
    environment = os.environ | {"API_HOST": "127.0.0.1", "API_PORT": str(production_server.port)}
    run = subprocess.run(
        [sys.executable, EXAMPLE], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[-2:] == ["hello", "1"]


def test_the_readme_shows_that_example() -> None:
    shown = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    assert EXAMPLE.read_text(encoding="utf-8").endswith(shown)
