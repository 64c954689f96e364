"""Store URLs, `NAME:PLACE?option=value&...`, and reading their options strictly."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from adapters.errors import Unsupported


class Options:
    """The options of one URL. Every reader raises Unsupported, naming the option, for a value that does not fit."""

    def __init__(self, store: str, given: dict[str, str]) -> None:
        self._store = store
        self._given = dict(given)
        self._known: list[str] = []

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self._take(name, default)
        if value not in allowed:
            raise Unsupported(f"{self._store}: option {name}={value!r} is none of {', '.join(allowed)}")
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        value = self._take(name, str(default))
        if not value.isascii() or not value.isdigit() or not low <= int(value) <= high:
            raise Unsupported(f"{self._store}: option {name}={value!r} is not a whole number from {low} to {high}")
        return int(value)

    def text(self, name: str, default: str) -> str:
        return self._take(name, default)

    def password(self) -> str:
        """From `password`, or the file that `password_file` names, without its last end of line."""
        password, path = self.text("password", ""), self.text("password_file", "")
        if not path:
            return password
        if password:
            raise Unsupported(f"{self._store}: both password and password_file are given; give one")
        try:
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            cause = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise Unsupported(f"{self._store}: password_file {path}: {cause}") from error

    def finish(self) -> None:
        """To be called after the last option was read: what is left over is unknown and refused."""
        for name in self._given:
            known = ", ".join(self._known) or "none"
            raise Unsupported(f"{self._store}: unknown option {name!r}; known options: {known}")

    def _take(self, name: str, default: str) -> str:
        self._known.append(name)
        return self._given.pop(name, default)


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A URL taken apart; `place` is whatever the named store makes of it: a path, hosts, nothing.

    `options` are the store's own. `zookeeper` is an option of every URL, and of no store: where build.py finds the
    ZooKeeper that supplies compare-and-set.
    """

    name: str
    place: str
    options: Options
    zookeeper: str | None = None


def shown(url: str) -> str:
    """The URL, or a part of it, as it may stand in messages and logs: without passwords."""
    return re.sub(r"((?:^|[?&])password=)[^&]*", r"\1***", url)


def parse_url(url: str) -> StoreUrl:
    """Raises Unsupported for text that is no store URL, a repeated option or one without a value."""
    name, colon, rest = url.partition(":")
    if not colon or not name:
        example = "memory: or lmdb:/var/lib/pbserver"
        raise Unsupported(f"store {shown(url)!r} is not NAME:PLACE?option=value, such as {example}")
    place, _, query = rest.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise Unsupported(f"{name}: options {shown(query)!r} are not option=value joined by &") from error
    options = dict(pairs)
    if len(options) != len(pairs):
        raise Unsupported(f"{name}: an option is given twice in {shown(query)!r}")
    zookeeper = options.pop("zookeeper", None)
    return StoreUrl(name, place, Options(name, options), zookeeper)
