"""How long steps say what they are doing."""

from collections.abc import Callable

#: Receives one sentence as each step begins.
Report = Callable[[str], None]


def say_nothing(step: str) -> None:
    """A Report for those who do not watch."""
