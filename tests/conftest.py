"""For all tests: a skip counts as a failure unless allowed_skips.txt names its reason."""

from pathlib import Path

import pytest

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
        terminalreporter.write_line(f"skipped, but not in {ALLOWED.name}: {line}", red=True)
