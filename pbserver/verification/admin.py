"""What `pbserver verify` does, on the store itself, whether a server runs on it or not."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from adapters.build import is_shared, open_store
from adapters.contract import OrderedStore
from adapters.errors import Corrupt, StoreError
from pbserver.datastore import keys
from pbserver.datastore.core import FORMAT
from pbserver.datastore.errors import DatastoreError
from pbserver.datastore.tables import meta_address
from pbserver.settings import load
from pbserver.verification.mending import repair as mend
from pbserver.verification.problem import Problem, shown_partition
from pbserver.verification.walk import Tally, known_projects, problems

_WRONG = 1
_NOT_LOOKED = 2
_MOST_PASSES = 5  # a kind listed anew shows rows that could not be reached before
_SECONDS = 60.0

_UNSEEN = (
    "rows to which no listed app, no listed kind and no entity leads cannot be reached and were not checked "
    "(pbserver/verification/walk.py)"
)


def verify(url: str | None, config: Path | None, apps: list[str], *, repair: bool, most: int) -> None:
    """Exits with the command's status; one line to stderr for what the operator can mend."""
    try:
        store = _open(load(config, {"store": url}).store)
        try:
            code = _verify(store, _projects(store, apps), repair=repair, most=most)
        finally:
            store.close()
    except Corrupt as damaged:
        _end(_WRONG, damaged)
    except (DatastoreError, StoreError, OSError, ValueError) as wrong:
        _end(_NOT_LOOKED, wrong)
    sys.exit(code)


def _end(code: int, reason: Exception) -> NoReturn:
    sys.stderr.write(f"pbserver: {reason}\n")
    sys.exit(code)


def _open(url: str) -> OrderedStore:
    if not is_shared(url):
        raise ValueError(f"{url} lives inside the server's process; nobody else can look at it")
    store = open_store(url)
    try:
        _check_format(store, url)
        store.ensure_tables()
    except BaseException:
        store.close()
        raise
    return store


def _check_format(store: OrderedStore, url: str) -> None:
    found = store.read([meta_address("format")], deadline=time.monotonic() + _SECONDS)[0]
    if found is None:
        raise ValueError(f"{url} holds no data of pbserver; is this the place you mean?")
    if found != FORMAT:
        raise ValueError(f"{url} is of format {found!r}, this pbserver reads {FORMAT!r}: nothing was checked")


def _projects(store: OrderedStore, apps: list[str]) -> list[bytes]:
    """The projects of the apps that are named, or all that the store tells of."""
    named = [keys.partition(app.encode(), database.encode(), b"") for app, _, database in map(_split, apps)]
    found = list(dict.fromkeys(named)) or known_projects(store)
    if not found:
        raise ValueError("which apps? The store tells of none; if it should hold one, name it with --app ID")
    return found


def _split(app: str) -> tuple[str, str, str]:
    return app.partition("/")


def _verify(store: OrderedStore, projects: list[bytes], *, repair: bool, most: int) -> int:
    report = _Report(most)
    tally = Tally()
    for number in range(_MOST_PASSES if repair else 1):
        tally = Tally()
        mended = 0
        report.begin()
        with _told(tally):
            for problem in problems(store, projects, tally):
                done = repair and mend(store, problem)
                mended += done
                report.add(problem, mended=done)
        if not mended or number == _MOST_PASSES - 1:
            break
    report.end(tally, projects)
    return _WRONG if report.wrong else _NOT_LOOKED if tally.restless else 0


@contextmanager
def _told(tally: Tally) -> Iterator[None]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("verifying")
        tally.told = lambda now: progress.update(task, description=_counts(now))
        yield


def _counts(tally: Tally) -> str:
    finished = f", {tally.unfinished} unfinished commits finished" if tally.unfinished else ""
    return f"{tally.entities} entities, {tally.index_rows} index rows{finished}"


class _Report:
    """One line for each problem, the first of them shown; what was left in the last pass decides."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._shown: set[str] = set()
        self._hidden = 0
        self._mended = 0
        self.wrong = 0

    def begin(self) -> None:
        self.wrong = 0
        self._hidden = 0

    def add(self, problem: Problem, *, mended: bool) -> None:
        self._mended += mended
        self.wrong += not mended and not problem.fault.is_note
        line = ("repaired: " if mended else "note: " if problem.fault.is_note else "") + str(problem)
        if line in self._shown:
            return
        if len(self._shown) >= self._most:
            self._hidden += 1
            return
        self._shown.add(line)
        sys.stdout.write(line + "\n")

    def end(self, tally: Tally, projects: list[bytes]) -> None:
        if self._hidden:
            sys.stdout.write(f"and {self._hidden} more\n")
        if self._mended:
            sys.stdout.write(f"{self._mended} problems repaired\n")
        finding = f"{self.wrong} problems" if self.wrong else "nothing wrong"
        sys.stdout.write(f"{_counts(tally)}: {finding}\n")
        if tally.restless:
            shown = f"{len(tally.restless)} entity groups were changed all the time and could not be judged: try again"
            sys.stderr.write(f"pbserver: {shown}\n")
        apps = ", ".join(map(shown_partition, projects))
        sys.stderr.write(f"pbserver: checked {apps}; {_UNSEEN}\n")
