"""`pbserver stores`: which databases there are, what each promises, and what is put over it. Opens none of them.
`pbserver conformance`: whether one keeps its promises.
"""

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from adapters.contract import Capabilities


def register(app: typer.Typer) -> None:
    app.command()(stores)
    app.command()(conformance)


def stores(*, as_json: Annotated[bool, typer.Option("--json", help="One object per store.")] = False) -> None:
    """Lists the stores for --store: what each promises without options, the layers it gets, whether it can serve."""
    from adapters.registry import STORES

    found = [described(name) for name in sorted(STORES)]
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        _print_table(found)


def conformance(
    *,
    store: Annotated[str, typer.Option(metavar="URL", help="The store to test.")],
    delete_all_rows: Annotated[bool, typer.Option("--delete-all-rows", help="Yes, it holds nothing of value.")] = False,
    only: Annotated[str, typer.Option(metavar="EXPRESSION", help="As pytest's -k.")] = "",
) -> None:
    """Tests whether a store keeps the adapter contract. Deletes every row it holds. Exits as pytest does."""
    from importlib.util import find_spec
    from pathlib import Path

    if not delete_all_rows:
        _refuse(f"every row of {store} will be deleted; say --delete-all-rows if it holds nothing of value")
    if find_spec("pytest") is None or find_spec("hypothesis") is None:
        _refuse("the tests need pytest and hypothesis; pip install 'pbserver[test]'")
    import pytest

    import adapters.conformance

    suite = Path(adapters.conformance.__file__).parent
    alone = ["-c", os.devnull, f"--rootdir={suite}", "-p", "no:cacheprovider"]  # no settings of whoever's directory
    warnings = ["-W", "ignore::pytest.PytestUnknownMarkWarning"]  # pytest-timeout may be missing
    selection = ["-k", only, "--store", store, *map(str, sorted(suite.glob("test_*.py")))]
    sys.exit(pytest.main([*alone, *warnings, "-q", "-p", "adapters.conformance.plugin", *selection]))


def _refuse(why: str) -> NoReturn:
    sys.stderr.write(f"pbserver: {why}\n")
    sys.exit(2)


def described(name: str) -> dict[str, Any]:
    """What can be said of a store unopened; without its driver, no more than which package brings it."""
    from adapters import registry
    from adapters.build import layers_for, missing_capabilities

    registration = registry.STORES[name]
    there = registry.driver_installed(name)
    facts: dict[str, Any] = {"store": name, "installed": there, "package": registration.package}
    if there:
        claims = registry.capabilities(name)
        facts |= {"layers": layers_for(claims), "missing": missing_capabilities(claims), "capabilities": _plain(claims)}
    return facts


def _plain(claims: "Capabilities") -> dict[str, Any]:
    from dataclasses import fields
    from enum import Enum

    values = {field.name: getattr(claims, field.name) for field in fields(claims)}
    return {name: value.name.lower() if isinstance(value, Enum) else value for name, value in values.items()}


def _print_table(found: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    sheet = Table("store", "driver", "promises", "limits", "layers", "serves")
    for facts in found:
        driver = "installed" if facts["installed"] else f"pip install {facts['package']}"
        if not facts["package"]:
            driver = "none needed"
        told = _told(facts) if facts["installed"] else ["", "", "", "no"]
        sheet.add_row(*map(escape, [facts["store"], driver, *told]))
    Console().print(sheet)


def _told(facts: dict[str, Any]) -> list[str]:
    claims: dict[str, Any] = facts["capabilities"]
    words = [f"{name} {claims[name]}" for name in ("atomicity", "consistency", "durable")]
    words += [name for name, value in claims.items() if value is True]
    limits = [f"{name} {value:,}" for name, value in claims.items() if _is_limit(value)]
    serves = f"no: lacks {', '.join(facts['missing'])}" if facts["missing"] else "yes"
    return ["\n".join(words), "\n".join(limits) or "none", "\n".join(facts["layers"]), serves]


def _is_limit(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
