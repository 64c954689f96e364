"""The command `pbcontroller`: a node's agent, started by the node's supervisord."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import structlog
import typer

from controller.agent import api
from controller.agent.api import Agent
from controller.agent.home import AgentSettings, Home, secret
from controller.head.api import head_calls

HEAD = 1  # the number of the node that has it

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
Directory = Annotated[Path, typer.Option("--directory", metavar="DIR", help="The node's; `pbdeploy up` has filled it.")]


@app.command()
def run(directory: Directory) -> None:
    """Serves until SIGTERM. What it has started goes on without it."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ]
    )
    home = Home(directory)
    try:
        settings = AgentSettings.read(home)
        asyncio.run(_serve(home, settings))
    except (OSError, ValueError) as error:
        sys.exit(f"pbcontroller: {error}")


async def _serve(home: Home, settings: AgentSettings) -> None:
    word = secret(home)
    calls = Agent(home, settings).calls()
    if settings.number == HEAD:
        calls |= head_calls(home, settings, word)
    server = api.server(api.application(calls, word), home)
    server.listen(settings.port, settings.address)
    structlog.get_logger().info("serves", address=settings.address, port=settings.port)
    await asyncio.Event().wait()


def main() -> None:
    """The console script."""
    app(prog_name="pbcontroller")


if __name__ == "__main__":
    main()
