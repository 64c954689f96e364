"""Loads firewall rules, and takes them back unless somebody confirms them. Sent over SSH to `python3 -`.

The one argument is JSON. {"table": "NAME", "rules": {"nft": "...", "iptables": "...", "ip6tables": "..."}, "seconds":
N} swaps the rules of nftables' table, or of the chains of iptables, by the commands that this machine has; what was
there before comes back after N seconds. {"table": "NAME"} confirms, which must come through a connection made
afterwards. {"kept": "FILE"} loads, at boot, what install.py has kept: {"table": ..., "rules": ...}. Python 3.6.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List  # noqa: UP035 - see above

_POLL_SECONDS = 0.1
_LOCK_SECONDS = 10  # others load rules, too
_TOOLS = (["nft"], ["iptables", "ip6tables"])


def run(*command: str, text: str = "") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(  # noqa: S603, UP022 - capture_output is of 3.7
        command,  # of the machine's own PATH
        input=text.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
    )


def commands(table: str) -> List[str]:  # noqa: UP006
    """Those to load rules with; empty: there are none. Where rules of ours are they stay, else two sets would be in
    force: a machine may get nftables later.
    """
    there = [tool for tool in _TOOLS if all(map(shutil.which, tool))]
    return next((tool for tool in there if any(held(each, table) for each in tool)), there[0] if there else [])


def held(command: str, table: str) -> str:
    """The rules of ours that are in force, as the command takes them; empty: none."""
    if command == "nft":
        return run("nft", "list", "table", "inet", table).stdout.decode()
    lines = run(f"{command}-save").stdout.decode().splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith(f"-A {table} "))


def transaction(command: str, table: str, rules: str, jumps: int = 0) -> str:
    """What takes away the rules that are there, if any, and loads these, if any; all of it or nothing. `jumps`: how
    often INPUT leads to our chain now; it will once, before all else.
    """
    if command == "nft":
        return f"table inet {table}\ndelete table inet {table}\n{rules}"  # made first, so that it can be deleted
    leading = f"INPUT -j {table}\n"
    # To name the chain is to make it, or to empty it: --noflush keeps other chains only.
    end = f"{rules}-I {leading}" if rules else f"-X {table}\n"
    return f"*filter\n:{table} - [0:0]\n{f'-D {leading}' * jumps}{end}COMMIT\n"


def swap(command: str, table: str, rules: str) -> str:
    """What the command has against it; empty: it is done."""
    if command == "nft":
        done = run("nft", "-f", "-", text=transaction(command, table, rules))
    else:
        saved = run(f"{command}-save").stdout.decode().splitlines()
        text = transaction(command, table, rules, saved.count(f"-A INPUT -j {table}"))
        done = run(f"{command}-restore", "--noflush", "--wait", str(_LOCK_SECONDS), text=text)
    return done.stderr.decode(errors="replace") if done.returncode else ""


def load(table: str, rules: Dict[str, str], seconds: float) -> str:  # noqa: UP006
    """What is wrong; empty: they are loaded."""
    chosen = commands(table)
    if not chosen:
        return "there is neither nft nor iptables; install nftables"
    mark = waiting(table)
    try:
        mark.open("x").close()
    except FileExistsError:
        return f"another ruleset waits to be confirmed or taken back: {mark}"
    before = {}  # type: Dict[str, str]
    for command in chosen:
        old = held(command, table)
        trouble = swap(command, table, rules[command])
        if trouble:
            restore(table, before)  # of IPv4, when it is IPv6's that are refused
            mark.unlink()
            return trouble
        before[command] = old
    if os.fork() == 0:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for handle in range(3):
            os.dup2(nowhere, handle)
        _restore_unless_confirmed(table, before, seconds)
    return ""


def waiting(table: str) -> Path:
    """Is there as long as rules wait to be confirmed."""
    return Path(f"/run/{table}.unconfirmed")


def restore(table: str, before: Dict[str, str]) -> None:  # noqa: UP006
    for command, rules in before.items():
        swap(command, table, rules)


def _restore_unless_confirmed(table: str, before: Dict[str, str], seconds: float) -> None:  # noqa: UP006
    mark = waiting(table)
    end = time.monotonic() + seconds
    try:
        while mark.exists() and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        if mark.exists():
            restore(table, before)
            mark.unlink()
    finally:
        os._exit(0)


def confirm(table: str) -> str:
    try:
        waiting(table).unlink()
    except FileNotFoundError:
        return "it was taken back before it was confirmed"
    return ""


def load_kept(file: Path) -> str:
    """What is wrong; empty: they are loaded. Rules that somebody tries out at this moment are left alone."""
    kept = json.loads(file.read_text(encoding="utf-8"))
    table, rules = kept["table"], kept["rules"]
    if waiting(table).exists():
        return ""
    chosen = commands(table)
    if not chosen:
        return "there is neither nft nor iptables; install nftables"
    return "; ".join(filter(None, (swap(command, table, rules[command]) for command in chosen)))


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    if "kept" in wanted:
        sys.exit(load_kept(Path(wanted["kept"])) or 0)
    trouble = load(**wanted) if "rules" in wanted else confirm(**wanted)
    sys.stdout.write(json.dumps(trouble))
