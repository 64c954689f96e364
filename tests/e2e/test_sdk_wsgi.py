"""A whole App Engine app in a process of its own, wrapped by the SDK, asked over HTTP from many clients."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.sdk import environment
from tests.e2e.server import ROOT, Server, wait_until
from tests.e2e.wsgi_app import LIMIT

HEADERS = {"X-Appengine-Api-Ticket": "a-ticket"}


@pytest.fixture(params=["legacy", "contextvars"])
def guest_book(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of the running app."""
    variables = {name: value for name, value in environment(server.port).items() if not name.startswith("HTTP_")}
    variables["READ_GAE_CONTEXT_FROM_OS_ENVIRON"] = "true" if request.param == "legacy" else "false"
    printed = tmp_path / "port"
    with printed.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.wsgi_app", request.param],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdout=output,
        )
    try:
        wait_until(lambda: printed.read_text().endswith("\n") or process.poll() is not None, "the app's port")
        with httpx.Client(
            base_url=f"http://127.0.0.1:{int(printed.read_text())}", headers=HEADERS, timeout=60
        ) as client:
            yield client
    finally:
        process.kill()
        process.wait()


def ask(client: httpx.Client, path: str, headers: dict[str, str] | None = None, **asked: str) -> Any:
    response = client.get(path, params=asked, headers=headers)
    response.raise_for_status()
    return response.json()


def all_greetings(client: httpx.Client) -> list[list[Any]]:
    found: list[list[Any]] = []
    page = ask(client, "/show")
    while True:
        found += page["greetings"]
        if page["next"] is None:
            return found
        assert len(page["greetings"]) == LIMIT
        page = ask(client, "/show", **{"from": page["next"]})


def test_the_app_counts_pages_finds_and_deletes(guest_book: httpx.Client) -> None:
    texts = [f"naïve {number} \n東京" for number in range(30)]
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda text: ask(guest_book, "/sign", author=text[-1], text=text), texts))
    assert sorted(numbers) == list(range(1, 31))
    greetings = all_greetings(guest_book)
    assert [number for number, _, _ in greetings] == list(range(1, 31))
    assert sorted(text for _, _, text in greetings) == sorted(texts)
    assert ask(guest_book, "/author", author="京") == {"count": 30, "texts": sorted(texts)}
    assert ask(guest_book, "/clear") == {"deleted": 30, "namespace": ""}
    assert all_greetings(guest_book) == []


def test_a_handler_that_rolls_back_leaves_nothing(guest_book: httpx.Client) -> None:
    assert ask(guest_book, "/sign", author="a", text="x") == 1
    assert ask(guest_book, "/sign", author="vandal", text="x") is None
    assert ask(guest_book, "/sign", author="b", text="x") == 2
    assert ask(guest_book, "/author", author="vandal") == {"count": 0, "texts": []}


def test_the_namespace_header_separates_tenants(guest_book: httpx.Client) -> None:
    tenants = [{"X-AppEngine-Current-Namespace": name} for name in ("one", "two")]
    for tenant in tenants:
        assert ask(guest_book, "/sign", tenant, author="a", text="x") == 1
    assert ask(guest_book, "/clear", tenants[0]) == {"deleted": 1, "namespace": "one"}
    assert ask(guest_book, "/author", tenants[1], author="a")["count"] == 1
    assert ask(guest_book, "/author", author="a")["count"] == 0
