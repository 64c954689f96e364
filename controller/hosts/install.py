"""What pbdeploy does on a machine. Sent over SSH to `python3 -` with a line after it that calls `answer`: so nothing
of it, the cluster's secret least of all, is on a command line. The standard library alone.

Every function takes the node's directory and returns what becomes JSON.
"""

import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

_STOP_SECONDS = 20
_POLL_SECONDS = 0.1
_SYSTEMD = Path("/run/systemd/system")
_UNITS = Path("/etc/systemd/system")
_SHOWN_BYTES = 200_000


def look(home: Path) -> dict[str, Any]:
    """What pbdeploy has put there, and whether the node's supervisord runs."""
    return {
        "placed": _text(home / "agent" / "placed"),
        "version": _text(home / "agent" / "version"),
        "runs": _runs(home),
    }


def place(home: Path, texts: dict[str, str], placed: str) -> dict[str, Any]:
    """Writes the agent's files, for the owner alone; `placed` names what they are."""
    agent = home / "agent"
    for directory in (home, agent, home / "log", home / "run", home / "conf"):
        directory.mkdir(parents=True, exist_ok=True)
    agent.chmod(0o700)
    for name, text in {**texts, "placed": placed}.items():
        _write(agent / name, text)
    (home / "boot").write_text(texts["boot"], encoding="utf-8")
    (home / "boot").chmod(0o755)
    return {}


def install(home: Path, wheel: str, content: str) -> dict[str, Any]:
    """Begins to make the node's own virtual environment with PBServer in it; `installed` says how it stands."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "log").mkdir(exist_ok=True)
    (home / wheel).write_bytes(base64.b64decode(content))
    (home / "installed").unlink(missing_ok=True)
    script = (
        "rm -rf venv.new && python3 -m venv venv && "
        f'venv/bin/python -m pip install --disable-pip-version-check --force-reinstall "./{wheel}[node]"; '
        f'echo $? >installed.new; mv installed.new installed; rm -f "{wheel}"'
    )
    with (home / "log" / "install.log").open("wb") as log:
        subprocess.Popen(  # noqa: S602 - names of ours
            script, shell=True, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    return {}


def installed(home: Path) -> dict[str, Any]:
    """`code`: None as long as it goes on."""
    code = _text(home / "installed")
    return {"code": int(code) if code else None, "log": _tail(home / "log" / "install.log", 15)}


def boot(home: Path, unit: str) -> dict[str, Any]:
    """Starts the node's supervisord, and where systemd runs sees to it that every boot does."""
    if not _SYSTEMD.is_dir():
        _done([str(home / "boot")])
        return {"by_itself": False}
    (_UNITS / unit).write_text((home / "agent" / "unit").read_text(encoding="utf-8"), encoding="utf-8")
    for arguments in (["daemon-reload"], ["enable", unit], ["start", unit]):
        _done(["systemctl", *arguments])
    return {"by_itself": True}


def restart(home: Path) -> dict[str, Any]:
    """The agent, not what it has started."""
    address = f"unix://{home / 'run' / 'supervisor.sock'}"
    _done([_text(home / "agent" / "python"), "-m", "supervisor.supervisorctl", "-s", address, "restart", "agent"])
    return {}


def halt(home: Path, unit: str) -> dict[str, Any]:
    """Stops the node's supervisord with all of its services; to be called again as long as it `runs`."""
    if _SYSTEMD.is_dir() and (_UNITS / unit).exists():
        _done(["systemctl", "disable", "--no-block", "--now", unit])
    elif _runs(home):
        os.kill(_pid(home), signal.SIGTERM)
    end = time.monotonic() + _STOP_SECONDS
    while _runs(home) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
    if not _runs(home) and (python := _text(home / "agent" / "python")):
        _done([python, "-c", f"from controller.agent import launch; launch.end({str(home)!r}, below=True)"])
    return {"runs": _runs(home)}


def wipe(home: Path, unit: str) -> dict[str, Any]:
    """Removes the node's directory with all data; only one that pbdeploy has made, and in which nothing runs."""
    if not (home / "agent").is_dir():
        return {"wiped": False}
    if _runs(home):
        raise RuntimeError("its services still run")
    (_UNITS / unit).unlink(missing_ok=True)
    shutil.rmtree(home)
    with suppress(OSError):  # it holds something else, or another node on the same disk was faster
        home.parent.rmdir()
    return {"wiped": True}


def keep_rules(home: Path, table: str, rules: dict[str, str]) -> dict[str, Any]:
    """Firewall rules for the node's `boot` to load; without rules there are none any more. `kept`: False where there is
    no such node yet.
    """
    if not (home / "agent").is_dir():
        return {"kept": False}
    kept = home / "firewall.json"
    if any(rules.values()):
        _write(kept, json.dumps({"table": table, "rules": rules}))
    else:
        kept.unlink(missing_ok=True)
    return {"kept": True}


def logs(home: Path, service: str, lines: int) -> dict[str, Any]:
    """The ends of the logs of all services, or of one."""
    found = sorted((home / "log").glob(f"{service or '*'}.log"))
    return {"logs": {each.stem: _tail(each, lines) for each in found}}


def ask(home: Path, name: str, body: str, seconds: float) -> dict[str, Any]:
    """Puts a question to the node's agent, with the secret that lies there."""
    if not _runs(home):
        return {"code": 0, "body": "nothing of the cluster runs there; pbdeploy up"}
    settings = tomllib.loads(_text(home / "agent" / "agent.toml"))
    context = ssl.create_default_context(cafile=str(home / "agent" / "ca.pem"))
    headers = {"Authorization": f"Bearer {_text(home / 'agent' / 'secret')}"}
    connection = HTTPSConnection(settings["address"], settings["port"], timeout=seconds, context=context)
    try:
        connection.request("POST", f"/{name}", body, headers)
        answer = connection.getresponse()
        return {"code": answer.status, "body": answer.read().decode()}
    except (OSError, HTTPException) as error:
        return {"code": 0, "body": f"the agent does not answer: {error}"}
    finally:
        connection.close()


def _pid(home: Path) -> int:
    """Of the node's supervisord, 0 if there is none; a pid that somebody else has by now is none."""
    pid = _text(home / "run" / "supervisord.pid")
    try:
        command = Path(f"/proc/{int(pid)}/cmdline").read_bytes()
    except (OSError, ValueError):
        return 0
    return int(pid) if os.fsencode(home / "agent" / "supervisord.conf") in command.split(b"\0") else 0


def _runs(home: Path) -> bool:
    return _pid(home) != 0


def _write(path: Path, text: str) -> None:
    """For the owner alone, and never half of it."""
    made = path.with_name(f".{path.name}.new")
    made.unlink(missing_ok=True)
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    made.replace(path)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""


def _tail(path: Path, lines: int) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - _SHOWN_BYTES))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])


def _done(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a command of ours
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")


def answer(request: str) -> None:
    """`request`: JSON with `do`, the node's directory as `home`, and the function's other arguments."""
    sys.tracebacklimit = 0  # a traceback may quote the line that calls this, with the secret in it
    wanted = json.loads(request)
    act, home = globals()[wanted.pop("do")], Path(wanted.pop("home"))
    try:
        said = act(home, **wanted)
    except (OSError, RuntimeError) as error:
        said = {"error": str(error)}
    sys.stdout.write(json.dumps(said))
