"""Configuration files: written as a whole or not at all, and every change told as a diff."""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path


def write(path: Path, text: str, mode: int = 0o644) -> str:
    """Makes the file be `text`; the unified diff to what it was, empty if it was that already. Whoever reads it
    meanwhile gets the old or the new text. Where the mode lets only the owner read, the diff is not shown.
    """
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if path.exists() and before == text and path.stat().st_mode & 0o777 == mode:
        return ""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.new")
    made.unlink(missing_ok=True)
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
    if not mode & 0o077:
        return f"{path}: changed\n"
    return "".join(
        difflib.unified_diff(before.splitlines(keepends=True), text.splitlines(keepends=True), str(path), str(path))
    )


def write_all(texts: Mapping[Path, str]) -> str:
    """The diffs of all, one after the other; text that begins with `#!` becomes executable."""
    return "".join(write(path, text, 0o755 if text.startswith("#!") else 0o644) for path, text in texts.items())
