"""What the operator sees of long steps, and of errors that are not bugs."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from rich.console import Console

from controller.booting import BootFailed
from controller.engines.tools import EngineError
from controller.progress import Report
from controller.recipe import ClusterError

FAILED = 1


def fail(*lines: str, code: int = FAILED) -> NoReturn:
    """Ends the program with these lines alone."""
    sys.stderr.write("".join(f"pbdeploy: {line}\n" for line in lines))
    sys.exit(code)


@contextmanager
def watched(title: str) -> Iterator[Report]:
    """Gives a Report that prints each step with the seconds passed, below it on a terminal a spinner. An error with
    an answer for the operator ends the program with its text alone.
    """
    console = Console(stderr=True, highlight=False)
    begun = time.monotonic()

    def report(step: str) -> None:
        console.print(f"{time.monotonic() - begun:6.1f} s  {step}", markup=False, soft_wrap=True)

    try:
        with console.status(title):
            yield report
    except (BootFailed, ClusterError, EngineError) as error:
        fail(str(error))
