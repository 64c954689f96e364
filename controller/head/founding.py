"""What the head keeps for good of a cluster that was whole once, in files of its agent's directory."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from controller.agent import files
from controller.agent.home import Home
from controller.agent.parts import Parts


@dataclass(frozen=True, slots=True)
class Founding:
    """Numbers of nodes, one in each line."""

    home: Home

    @property
    def done(self) -> bool:
        return self._joined.exists()

    @property
    def joined(self) -> set[int]:
        """The nodes that have ever had a part of the data."""
        return _numbers(self._joined)

    def note(self, joined: Iterable[int], parts: Parts) -> None:
        """The keepers are those that there were the first time."""
        if not self.done:
            _write(self._keepers, parts.keepers)
        _write(self._joined, joined)

    def refusal(self, parts: Parts) -> str:
        """Why the cluster cannot be as this layout says; empty: it can, or is not founded yet. One from before there
        were keepers has none.
        """
        return parts.other_quorum(_numbers(self._keepers)) if self.done else ""

    @property
    def _joined(self) -> Path:
        return self.home.agent / "founded"

    @property
    def _keepers(self) -> Path:
        return self.home.agent / "keepers"


def _numbers(file: Path) -> set[int]:
    return {int(line) for line in file.read_text(encoding="ascii").split()} if file.exists() else set()


def _write(file: Path, numbers: Iterable[int]) -> None:
    files.write(file, "".join(f"{number}\n" for number in sorted(numbers)))
