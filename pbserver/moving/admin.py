"""What `pbserver copy`, `pbserver dump` and `pbserver load` do."""

import hashlib
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from adapters.build import is_shared, open_store
from adapters.contract import OrderedStore
from adapters.errors import StoreError
from adapters.url import parse_url
from pbserver.datastore import keys, projects
from pbserver.datastore.core import FORMAT
from pbserver.datastore.errors import DatastoreError
from pbserver.datastore.tables import meta_address
from pbserver.moving import dump_file
from pbserver.moving.arriving import Arrival, is_unfinished
from pbserver.moving.comparing import differences
from pbserver.moving.dump_file import DumpFile
from pbserver.moving.reading import StoreSource, holds
from pbserver.moving.records import START, CannotMove, Place, Record, Source, Stored
from pbserver.settings import load as load_settings
from pbserver.verification import Tally, problems
from pbserver.verification.problem import shown_partition

_DIFFERENT = 1
_NOT_DONE = 2
_INTERRUPTED = 130
_MOST_SHOWN = 100
_TOLD_ENTITIES = 100
_SECONDS = 60.0

Told = Callable[[str], None]


def copy(source_url: str, target_url: str, apps: list[str], *, verify: bool) -> None:
    """Exits with the command's status; one line to stderr for what the operator can mend."""
    with _one_line():
        _check_two_stores(source_url, target_url)
        with _source(source_url) as source:
            wanted = _projects(source, source_url, apps)
            identity = _identity("copy", *_place(source_url), *sorted(apps))
            with _opened(target_url) as target, closing(Arrival(target, identity)) as arrival:
                with _progress("copying") as told:
                    arrival.told = lambda count, project: told(f"{count} entities, at {shown_partition(project)}")
                    arrival.take(StoreSource(source, wanted))
                if verify:
                    _verify(source, target, wanted)
                arrival.finish()
                _say(f"copied {arrival.entities} entities of {_shown(wanted)}")


def dump(url: str | None, config: Path | None, file: Path, *, packed: bool) -> None:
    """As copy()."""
    with _one_line():
        url = _named(url, config)
        with _source(url) as source:
            wanted = _projects(source, url, [])
            with _progress("dumping") as told:
                trailer = dump_file.write(file, _Counted(StoreSource(source, wanted), told).records(), packed=packed)
        _say(f"dumped {trailer.entities} entities of {_shown(wanted)}")


def load(url: str | None, config: Path | None, file: Path) -> None:
    """As copy()."""
    with _one_line():
        url = _named(url, config)
        _check_shared(url)
        with _progress("checking the file"):
            source = DumpFile(file)
        identity = _identity("load", source.trailer.sha256.hex())
        with _opened(url) as target, closing(Arrival(target, identity)) as arrival:
            with _progress("loading") as told:
                arrival.told = lambda count, _: told(f"{count} of {source.trailer.entities} entities")
                arrival.take(source)
            arrival.finish()
            _say(f"loaded {arrival.entities} entities of {source.trailer.projects} apps")


@contextmanager
def _one_line() -> Iterator[None]:
    """Whatever the operator can mend is one line; SIGTERM ends as tidily as Ctrl-C."""
    before = signal.signal(signal.SIGTERM, lambda *_: _end(_INTERRUPTED, "stopped"))
    try:
        yield
    except (CannotMove, DatastoreError, StoreError, OSError) as wrong:
        _end(_NOT_DONE, str(wrong))
    except KeyboardInterrupt:
        _end(_INTERRUPTED, "stopped")
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(code: int, reason: str) -> NoReturn:
    sys.stderr.write(f"pbserver: {' '.join(reason.split())}\n")
    sys.exit(code)


def _say(finding: str) -> None:
    sys.stdout.write(finding + "\n")


def _shown(wanted: Sequence[bytes]) -> str:
    return ", ".join(map(shown_partition, wanted))


# -- stores


def _named(url: str | None, config: Path | None) -> str:
    try:
        return load_settings(config, {"store": url}).store
    except ValueError as wrong:  # pydantic's and tomllib's errors
        raise CannotMove(str(wrong)) from wrong


def _check_two_stores(source_url: str, target_url: str) -> None:
    _check_shared(source_url)
    _check_shared(target_url)
    if _place(source_url) == _place(target_url):
        raise CannotMove(f"{source_url} and {target_url} are the same store; name another one")


def _check_shared(url: str) -> None:
    if not is_shared(url):
        raise CannotMove(f"{url} lives inside one process; nobody else can look at it")


def _place(url: str) -> tuple[str, str]:
    """What tells one store from another: its name and place, a directory by what it really is."""
    parsed = parse_url(url)
    here = Path(parsed.place)
    return parsed.name, str(here.resolve()) if here.exists() else parsed.place


def _identity(*parts: str) -> bytes:
    """A hash, as places may hold passwords."""
    return hashlib.sha256("\0".join(parts).encode()).digest()


@contextmanager
def _opened(url: str) -> Iterator[OrderedStore]:
    with closing(open_store(url)) as store:
        yield store


@contextmanager
def _source(url: str) -> Iterator[OrderedStore]:
    _check_shared(url)
    with _opened(url) as store:
        found = store.read([meta_address("format")], deadline=time.monotonic() + _SECONDS)[0]
        if found is None:
            raise CannotMove(f"{url} holds no data of pbserver; is this the place you mean?")
        if found != FORMAT:
            raise CannotMove(f"{url} is of format {found!r}, this pbserver reads {FORMAT!r}: nothing was touched")
        if is_unfinished(store):
            raise CannotMove(f"{url} is an unfinished copy itself; finish that first")
        store.ensure_tables()
        yield store


def _projects(store: OrderedStore, url: str, apps: list[str]) -> list[bytes]:
    """The projects of the apps that are named, or all that the store tells of."""
    listed = projects.projects(store)
    if not apps and not listed:
        raise CannotMove(f"{url} tells of no app; if it should hold one, name it with --app ID")
    named = [keys.partition(app.encode(), database.encode(), b"") for app, _, database in map(_split, apps)]
    for project in named:
        if project not in listed and not holds(store, project):
            known = f"it tells of {_shown(listed)}" if listed else "it tells of none"
            raise CannotMove(f"{url} holds nothing of {shown_partition(project)}; {known}")
    return list(dict.fromkeys(named)) or listed


def _split(app: str) -> tuple[str, str, str]:
    return app.partition("/")


# -- what is told


def _verify(source: OrderedStore, target: OrderedStore, wanted: Sequence[bytes]) -> None:
    """Exits when the target is no true copy, or is wrong in itself."""
    there = sorted({*wanted, *projects.projects(target)})
    with _progress("comparing") as told:
        ours, theirs = StoreSource(source, wanted), StoreSource(target, there)
        found = _first(differences(_Counted(ours, told), theirs))
    if not found:
        tally = Tally()
        with _progress("verifying") as told:
            tally.told = lambda now: told(f"{now.entities} entities, {now.index_rows} index rows")
            found = _first(str(each) for each in problems(target, there, tally) if not each.fault.is_note)
    if found:
        _say("\n".join(found))
        _end(
            _DIFFERENT,
            "the target is no true copy; if the source was in use meanwhile, copy it into an empty store while nobody "
            "writes",
        )


def _first(found: Iterable[str]) -> list[str]:
    """As many as can be read, and how many more there are."""
    left = iter(found)
    shown = [*islice(left, _MOST_SHOWN)]
    more = sum(1 for _ in left)
    return [*shown, f"and {more} more"] if more else shown


class _Counted:
    """A source (pbserver.moving.records.Source) that tells how far it is read."""

    def __init__(self, source: Source, told: Told) -> None:
        self._source = source
        self._told = told

    def records(self, after: Place = START) -> Iterator[Record]:
        count = 0
        for record in self._source.records(after):
            count += isinstance(record, Stored)
            if count % _TOLD_ENTITIES == 0:
                self._told(f"{count} entities, at {shown_partition(record.place.project)}")
            yield record


@contextmanager
def _progress(title: str) -> Iterator[Told]:
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title)
        yield lambda said: progress.update(task, description=f"{title}: {said}")
