"""What an operator does with composite indexes, on the store itself, whether a server runs on it or not."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from adapters.build import is_shared, open_store
from adapters.contract import OrderedStore
from adapters.errors import StoreError
from adapters.url import shown
from pbserver import index_yaml
from pbserver.datastore import keys
from pbserver.datastore.building import Builder, Unfinished
from pbserver.datastore.composites import Composite, Definition, State
from pbserver.datastore.core import Datastore
from pbserver.datastore.encoding import read_text
from pbserver.datastore.errors import DatastoreError
from pbserver.settings import load

_SECONDS = 60.0  # for each call to the store


@contextmanager
def opened(app_id: str, url: str | None, config: Path | None) -> Iterator["IndexAdmin"]:
    """The indexes of an app. What the operator can mend is one line to stderr, and status 1."""
    try:
        store = _open(load(config, {"store": url}).store)
        try:
            yield IndexAdmin(Datastore(store), keys.partition(app_id.encode(), b"", b""))
        finally:
            store.close()
    except (index_yaml.WrongIndexFile, DatastoreError, StoreError, OSError, ValueError) as wrong:
        sys.stderr.write(f"pbserver: {wrong}\n")
        sys.exit(1)


def _open(url: str) -> OrderedStore:
    if not is_shared(url):
        raise ValueError(f"{shown(url)} lives inside the server's process; create its indexes by CreateIndex")
    return open_store(url)


class IndexAdmin:
    """The indexes of one project."""

    def __init__(self, datastore: Datastore, project: bytes) -> None:
        self._datastore = datastore
        self._project = project
        datastore.prepare(deadline=_deadline())

    def apply(self, file: Path, *, wait: bool) -> None:
        """Creates what is missing. Raises SystemExit with status 1 when an index cannot be built."""
        try:
            wanted = dict.fromkeys(index_yaml.load(file.read_text(encoding="utf-8")))
        except index_yaml.WrongIndexFile as error:
            raise index_yaml.WrongIndexFile(f"{file}: {error}") from error
        existing = {each.definition: each for each in self._all() if each.state is not State.DELETING}
        for definition in wanted:
            found = existing.get(definition)
            made = found or self._datastore.catalog.create(self._project, definition, deadline=_deadline())
            sys.stdout.write(f"{'exists' if found else 'created'}: {_line(made)}\n")
        for definition, composite in existing.items():
            if definition not in wanted:
                sys.stdout.write(f"not in the file: {_line(composite)}\n")
        if wait:
            self._finish()

    def drop(self, ids: Sequence[int], *, wait: bool) -> None:
        for each in ids:
            self._datastore.catalog.delete(self._project, each, deadline=_deadline())
            sys.stdout.write(f"dropped: index {each}\n")
        if wait:
            self._finish()

    def print_yaml(self) -> None:
        sys.stdout.write("\n\n".join(["indexes:", *(index_yaml.dump(each.definition) for each in self._all())]) + "\n")

    def print_table(self) -> None:
        sheet = Table("id", "kind", "ancestor", "properties", "state", "note")
        for each in self._all():
            kind, properties = _described(each.definition)
            ancestor = "yes" if each.definition.ancestor else ""
            sheet.add_row(*map(escape, (str(each.id), kind, ancestor, properties, each.state.name.lower(), each.note)))
        Console().print(sheet)

    def _all(self) -> tuple[Composite, ...]:
        return self._datastore.catalog.read(self._project, deadline=_deadline()).all

    def _finish(self) -> None:
        """Builds and removes what is to be built and removed."""
        builder = self._datastore.builder()
        waiting = [each for each in builder.unfinished(deadline=_deadline()) if each.project == self._project]
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=Console(stderr=True)) as progress:
            for work in waiting:
                self._finish_one(builder, work, progress)
        ids = {work.composite.id for work in waiting}
        failed = [each for each in self._all() if each.id in ids and each.state is State.ERROR]
        for each in failed:
            sys.stderr.write(f"pbserver: index {each.id} could not be built: {each.note}\n")
        if failed:
            sys.exit(1)

    def _finish_one(self, builder: Builder, work: Unfinished, progress: Progress) -> None:
        composite = work.composite
        if composite.state is State.DELETING:
            task = progress.add_task(f"removing index {composite.id}", total=None)
            while builder.step(work, deadline=_deadline()):
                pass
        else:
            total = self._datastore.count_kind(self._project, composite.definition.kind, deadline=_deadline())
            task = progress.add_task(f"building index {composite.id}", total=total)
            while builder.step(work, deadline=_deadline()):
                progress.update(task, completed=builder.progress(work, deadline=_deadline()))
        progress.update(task, completed=progress.tasks[task].total or 0)


def _line(composite: Composite) -> str:
    kind, properties = _described(composite.definition)
    ancestor = " with ancestors" if composite.definition.ancestor else ""
    return f"index {composite.id} of {kind}{ancestor}: {properties} ({composite.state.name.lower()})"


def _described(definition: Definition) -> tuple[str, str]:
    """Kind and properties as an operator reads them."""
    kind = read_text(definition.kind, 0)[0].decode()
    properties = [name.decode() + (" desc" if descending else "") for name, descending in definition.properties]
    return kind, ", ".join(properties)


def _deadline() -> float:
    return time.monotonic() + _SECONDS
