"""A file system of a few megabytes that a test may fill or turn read-only."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOT_PERMITTED = "mounting a file system is not permitted here"
_PIECE = 4096


@contextmanager
def small_disk(place: Path, mebibytes: int) -> Iterator[Path]:
    """An empty tmpfs at `place`, gone afterwards. Skips the test where this user may not mount."""
    with disk_of_its_own(place, mebibytes):
        if not place.is_mount():
            pytest.skip(NOT_PERMITTED)
        yield place


@contextmanager
def disk_of_its_own(place: Path, mebibytes: int) -> Iterator[None]:
    """As small_disk; where this user may not mount, `place` is a directory as any other."""
    place.mkdir(parents=True)
    made = _run("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", place)
    try:
        yield
    finally:
        if made.returncode == 0:
            gone = _run("umount", "--lazy", place)
            assert gone.returncode == 0, gone.stderr


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Within the block the tmpfs is as large as what it holds."""
    found = os.statvfs(disk)
    try:
        while _run("mount", "-o", f"remount,size={_used_bytes(disk)}", disk).returncode:
            pass  # more has been written meanwhile
        yield
    finally:
        done = _run("mount", "-o", f"remount,size={found.f_blocks * found.f_frsize}", disk)
        assert done.returncode == 0, done.stderr


def _used_bytes(disk: Path) -> int:
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def set_read_only(disk: Path, *, read_only: bool) -> None:
    """Nobody may have a file open for writing there."""
    done = _run("mount", "-o", f"remount,{'ro' if read_only else 'rw'}", disk)
    assert done.returncode == 0, done.stderr


def fill(disk: Path) -> Path:
    """The file that takes all there is left; deleting it makes room again."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(os.urandom(_PIECE))
        except OSError:
            return ballast


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)
