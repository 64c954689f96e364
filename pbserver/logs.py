"""Logs go to stderr as structlog events, readable or as one JSON object a line."""

import logging
import sys
from typing import Any

import structlog

from pbserver.settings import LogSettings


def configure(settings: LogSettings, **facts: Any) -> None:
    """For this process and what it forks; `facts` (such as worker=0) stand in every event."""
    renderer: Any
    if settings.format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if settings.format == "json" else []),
            _adder(facts),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, settings.level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,  # a fork adds facts of its own
    )


def _adder(facts: dict[str, Any]) -> structlog.typing.Processor:
    def add(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {**facts, **event}

    return add
