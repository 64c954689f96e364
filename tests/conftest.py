"""For all tests: a skip counts as a failure unless allowed_skips.txt names its reason. With FAILURES, what fails is
told at once, for a run that is ended from outside, and appended to the file of that name: of runs side by side, the
one that ends last would hide it.
"""

import os
from pathlib import Path

import pytest

#: What they assert for tests is explained as if it stood in the tests.
pytest.register_assert_rewrite(
    "tests.clusters", "tests.e2e", "tests.faults", "tests.hosts", "tests.isolation", "tests.network", "tests.sshd"
)

FAILURES = os.environ.get("FAILURES")
MOST_TOLD = 3000  #: characters of one failure, its last ones
ALLOWED = Path(__file__).parent / "allowed_skips.txt"

_unexpected: list[str] = []


def allowed_reasons() -> list[str]:
    """The reasons in the list; `#` begins a comment."""
    lines = (line.partition("#")[0].strip() for line in ALLOWED.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(allowed in reason for allowed in allowed_reasons()):
            _unexpected.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _unexpected:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _unexpected:
        text = f"skipped, but not in {ALLOWED.name}: {line}"
        terminalreporter.write_line(text, red=True)
        _keep(text)


def pytest_configure(config: pytest.Config) -> None:
    if FAILURES and not hasattr(config, "workerinput"):  # the other processes of pytest-xdist report to this one
        config.pluginmanager.register(_AtOnce(config))


class _AtOnce:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            text = f"{report.nodeid}, {report.when}:\n{report.longreprtext[-MOST_TOLD:]}"
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            reporter.ensure_newline()
            reporter.write_line(text)
            _keep(text)


def _keep(text: str) -> None:
    if FAILURES:
        with Path(FAILURES).open("a", encoding="utf-8") as file:
            file.write(f"\n{text}\n")
