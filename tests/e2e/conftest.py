"""Fixtures: the real server, and the SDK that calls it. PBSERVER_REFEREE=google: see sdk.REFEREE."""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from google.appengine.runtime.default_api_stub import DefaultApiStub

from tests.e2e import sdk as app_engine
from tests.e2e.server import Server
from tests.e2e.wire import Wire, entity, key


@pytest.fixture(scope="session")
def testing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """--testing, two workers, LMDB; one for the whole session."""
    directory = tmp_path_factory.mktemp("server")
    with Server(directory, f"lmdb:{directory / 'store'}", workers=2, testing=True) as running:
        yield running


@pytest.fixture
def server(testing_server: Server) -> Iterator[Server]:
    """The session's server, emptied. Whatever a test does to it, its workers live on."""
    testing_server.errors()
    testing_server.reset()
    workers = testing_server.workers().keys()
    yield testing_server
    assert testing_server.workers().keys() == workers, "a worker died in this test"


@pytest.fixture
def production_server(tmp_path: Path) -> Iterator[Server]:
    """A fresh server without --testing."""
    with Server(tmp_path, f"lmdb:{tmp_path / 'store'}", workers=2) as running:
        yield running


@pytest.fixture(params=["lmdb", "memory"])
def each_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A fresh server per store; memory: lives in one process."""
    store, workers = {"lmdb": (f"lmdb:{tmp_path / 'store'}", 2), "memory": ("memory:", 1)}[request.param]
    with Server(tmp_path, store, workers=workers, testing=True) as running:
        yield running


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    """A client without an SDK. Whatever a test sends, the next client is served."""
    with Wire(server.port) as client:
        yield client
    with Wire(server.port) as client:
        after = entity(key(b"After", b"the test"), number=1)
        client.put(after)
        assert client.get(after.key) == [after]


@pytest.fixture(scope="session")
def api_stub() -> DefaultApiStub:
    """The SDK's own transport: threads and connections of one app."""
    return DefaultApiStub()


@pytest.fixture
def connect(api_stub: DefaultApiStub, monkeypatch: pytest.MonkeyPatch) -> Callable[[Server], None]:
    """A function that points the SDK of this process at a server."""

    def to(server: Server) -> None:
        for name, value in app_engine.environment(server.port).items():
            monkeypatch.setenv(name, value)
        app_engine.use_server(api_stub)

    return to


@pytest.fixture
def sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK, ready to be used, on an empty datastore."""
    if app_engine.REFEREE:
        for name, value in app_engine.environment(port=0).items():
            monkeypatch.setenv(name, value)
        app_engine.use_referee()
    else:
        request.getfixturevalue("connect")(request.getfixturevalue("server"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The referee has no process: leaves out what needs one."""
    if not app_engine.REFEREE:
        return
    processes = {"testing_server", "wire", "production_server", "each_store", "connect"}
    without = [item for item in items if not processes & set(getattr(item, "fixturenames", ()))]
    config.hook.pytest_deselected(items=[item for item in items if item not in without])
    items[:] = without


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows what the server wrote to stderr during a test that failed."""
    report = yield
    if report.failed:
        servers = {value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Server)}
        report.sections += [("stderr of pbserver", server.errors()) for server in servers]
    return report
