"""Loads an nftables ruleset, and takes it back unless somebody confirms it. Sent over SSH to `python3 -`.

The one argument is JSON: {"table": "NAME", "ruleset": "...", "seconds": N}: loads it; what was there before comes back
after N seconds. {"table": "NAME"}: confirms, which must come through a connection made afterwards. Python 3.6.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

_POLL_SECONDS = 0.1


def nft(*arguments: str, text: str = "") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(  # noqa: S603, UP022 - capture_output is of 3.7
        ["nft", *arguments],  # noqa: S607 - of the machine's own PATH
        input=text.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
    )


def waiting(table: str) -> Path:
    """Is there as long as a ruleset waits to be confirmed."""
    return Path(f"/run/{table}.unconfirmed")


def load(table: str, ruleset: str, seconds: float) -> str:
    """What nft has against it; empty: it is loaded."""
    mark = waiting(table)
    try:
        mark.open("x").close()
    except FileExistsError:
        return f"another ruleset waits to be confirmed or taken back: {mark}"
    before = nft("list", "table", "inet", table).stdout.decode()
    done = nft("-f", "-", text=ruleset)
    if done.returncode:
        mark.unlink()
        return done.stderr.decode(errors="replace")
    if os.fork() == 0:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for handle in range(3):
            os.dup2(nowhere, handle)
        _restore_unless_confirmed(mark, f"table inet {table}\ndelete table inet {table}\n{before}", seconds)
    return ""


def _restore_unless_confirmed(mark: Path, before: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    try:
        while mark.exists() and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        if mark.exists():
            nft("-f", "-", text=before)
            mark.unlink()
    finally:
        os._exit(0)


def confirm(table: str) -> str:
    try:
        waiting(table).unlink()
    except FileNotFoundError:
        return "it was taken back before it was confirmed"
    return ""


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    try:
        trouble = load(**wanted) if "ruleset" in wanted else confirm(**wanted)
    except FileNotFoundError as error:
        trouble = f"there is no {error.filename}; install nftables"
    sys.stdout.write(json.dumps(trouble))
