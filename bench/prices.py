"""What an hour of a machine costs, from prices.toml, which operators edit."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent / "prices.toml"


class UnknownPrice(Exception):
    """Nothing is known of such a machine, or what is written there is no price."""


@dataclass(frozen=True, slots=True)
class Price:
    machine: str
    per_hour: float
    currency: str


def of(machine: str, file: Path = FILE) -> Price:
    """Raises UnknownPrice."""
    try:
        known = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UnknownPrice(f"{file.name}: {error}") from error
    if machine not in known:
        raise UnknownPrice(f"no price of {machine!r}; there are: {', '.join(known)}; add yours to bench/{file.name}")
    entry = known[machine]
    per_hour, currency = entry.get("per_hour"), entry.get("currency")
    if not isinstance(per_hour, int | float) or per_hour <= 0 or not isinstance(currency, str):
        raise UnknownPrice(f"{file.name}: {machine} needs per_hour, a number above 0, and currency, a text")
    return Price(machine, float(per_hour), currency)
