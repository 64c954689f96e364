"""Settings from file, environment and flags, and what the command says about wrong ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from pbserver.__main__ import as_toml
from pbserver.settings import Settings, complaints, host_and_port, load

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("PBSERVER_"):
            monkeypatch.delenv(name)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pbserver", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)


def written(folder: Path, text: str) -> Path:
    file = folder / "pbserver.toml"
    file.write_text(text)
    return file


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, 'threads = 3\nworkers = 3\nstore = "memory:file"\n[http]\nmax_connections = 7\n')
    monkeypatch.setenv("PBSERVER_WORKERS", "4")
    monkeypatch.setenv("PBSERVER_STORE", "memory:environment")
    monkeypatch.setenv("PBSERVER_HTTP__MAX_HEADER_BYTES", "99")
    settings = load(file, {"store": "memory:flag", "listen": None})
    assert (settings.threads, settings.workers, settings.store) == (3, 4, "memory:flag")
    assert (settings.http.max_connections, settings.http.max_header_bytes) == (7, 99)
    assert settings.listen == Settings.model_fields["listen"].default


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("thread = 3", "thread: there is no such setting"),
        ("[http]\nmax_conections = 3", "http.max_conections: there is no such setting"),
        ("threads = 0", "threads: input should be greater than or equal to 1 (given: 0)"),
        ('listen = "10001"', "listen: '10001' is not HOST:PORT"),
        ('admin = "nowhere"', "admin: 'nowhere' is not HOST:PORT"),
        ('tls_cert = "cert.pem"', "tls_cert and tls_key go together: set both, or neither"),
    ],
)
def test_a_wrong_setting_is_one_line_with_its_key(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ValidationError) as wrong:
        load(written(tmp_path, text), {})
    lines = complaints(wrong.value)
    assert len(lines) == 1
    assert lines[0].startswith(complaint)


def test_printed_settings_read_back_the_same(tmp_path: Path) -> None:
    flags = {"admin": "none", "tls_cert": Path('a "quoted".pem'), "tls_key": Path("k.pem"), "threads": 5}
    for settings in (load(None, flags), load(None, {})):
        text = as_toml(settings)
        again = load(written(tmp_path, text), {})
        assert again.model_dump() == settings.model_dump()
        assert "# a larger call is refused before it is read" in text


def test_admin_none_means_no_admin_port() -> None:
    assert load(None, {"admin": "none"}).admin is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:10001", ("::1", 10001)), ("localhost:65535", ("localhost", 65535))],
)
def test_host_and_port_are_split(value: str, expected: tuple[str, int]) -> None:
    assert host_and_port(value) == expected


@pytest.mark.parametrize("value", ["", "host", ":1", "host:", "host:x", "host:65536", "host:-1"])
def test_what_is_not_host_and_port_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        host_and_port(value)


def test_the_command_prints_its_version_and_settings() -> None:
    assert run("--version").stdout == "pbserver 0.1.0\n"
    printed = run("config", "--print", "--threads", "5")
    assert printed.returncode == 0
    assert "\nthreads = 5  # threads per worker\n" in printed.stdout


def test_the_command_names_every_wrong_setting_and_ends_with_2(tmp_path: Path) -> None:
    file = written(tmp_path, "[log]\nlevel = 'loud'\nformt = 'x'\n")
    failed = run("serve", "--config", str(file), "--threads", "0")
    assert failed.returncode == 2
    assert failed.stdout == ""
    keys = sorted(line.split(":")[1].strip() for line in failed.stderr.splitlines())
    assert keys == ["log.formt", "log.level", "threads"]


@pytest.mark.parametrize("text", ["not = = toml", None])
def test_an_unreadable_file_is_one_line(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "missing.toml" if text is None else written(tmp_path, text)
    failed = run("config", "--config", str(file))
    assert failed.returncode == 2
    assert len(failed.stderr.splitlines()) == 1
    assert failed.stderr.startswith("pbserver: cannot read the settings: ")
