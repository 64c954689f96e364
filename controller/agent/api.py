"""The agent's calls: POST /NAME with a message as JSON, over TLS, with the cluster's secret as bearer token."""

import asyncio
import hmac
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from pydantic import SecretStr, ValidationError
from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from controller.agent import facts, services, tasks
from controller.agent.home import AgentSettings, Home
from controller.agent.messages import Ask, Done, Message, NodeFacts, Start, Stop, Task
from controller.agent.services import ServiceError
from controller.layout import Layout

_log = structlog.get_logger()

#: A call: what it is asked, and who answers it.
Call = tuple[type[Message], Callable[[Any], Awaitable[Message]]]
_MOST_BODY_BYTES = 1 << 20


@dataclass
class Agent:
    """One node's. Calls may come at the same time; those that change a service wait for each other."""

    home: Home
    settings: AgentSettings
    _layout: Layout | None = None
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def calls(self) -> dict[str, Call]:
        return {
            "facts": (Ask, self.facts),
            "work": (Task, self.work),
            "start": (Start, self.start),
            "stop": (Stop, self.stop),
        }

    async def facts(self, asked: Ask) -> NodeFacts:
        """Heard every few seconds, so the moment to look after logs, too."""
        del asked
        await asyncio.to_thread(services.shorten_logs, self.home)
        if self._layout is None and self.home.layout.exists():
            self._layout = Layout.model_validate_json(self.home.layout.read_text(encoding="utf-8"))
        known = self._layout
        if known is None:
            return await asyncio.to_thread(facts.gather, self.home, None)
        return await asyncio.to_thread(facts.gather, self.home, known.engines_directory, known.ports.admin)

    async def work(self, task: Task) -> Done:
        """In a process of its own, killed with its children when its time is over."""
        self._layout = task.layout
        done = await tasks.run(task)
        if task.task == tasks.PREPARE and done.ok:
            if done.text:
                _log.info("files changed", diff=done.text)
            adopted = await self._change(services.adopt, self.home)
            return done if adopted.ok else adopted
        return done

    async def start(self, asked: Start) -> Done:
        self._layout = asked.layout
        if asked.begins:
            task = Task(task=tasks.LET_BEGIN, layout=asked.layout, number=self.settings.number, argument=asked.on_disk)
            if not (done := await tasks.run(task)).ok:
                return done
        _log.info("start", service=asked.service, begins=asked.begins)
        return await self._change(services.start, self.home, asked.service, begins=asked.begins)

    async def stop(self, asked: Stop) -> Done:
        _log.info("stop", service=asked.service)
        return await self._change(services.stop, self.home, asked.service)

    async def _change(self, change: Callable[..., None], *arguments: object, **named: object) -> Done:
        async with self._changing:
            try:
                await asyncio.to_thread(change, *arguments, **named)
            except ServiceError as error:
                return Done(ok=False, text=str(error))
        return Done(ok=True)


def application(calls: dict[str, Call], secret: SecretStr) -> Application:
    """Serves the calls to whoever knows the secret."""
    routes = [(f"/{name}", _Handler, {"call": call, "secret": secret}) for name, call in calls.items()]
    return Application(routes, log_function=_say_nothing)


def server(app: Application, home: Home) -> HTTPServer:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(home.agent / "cert.pem", home.agent / "key.pem")
    return HTTPServer(app, ssl_options=context, max_body_size=_MOST_BODY_BYTES)


def _say_nothing(handler: RequestHandler) -> None:
    """What matters is logged where it is done; a heartbeat is no news."""


class _Handler(RequestHandler):
    def initialize(self, call: Call, secret: SecretStr) -> None:
        self._asked, self._answer = call
        self._secret = secret

    def prepare(self) -> None:
        given = self.request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._secret.get_secret_value()}".encode()):
            self.set_status(403)
            self.finish("the secret is not this cluster's")

    async def post(self) -> None:
        try:
            asked = self._asked.model_validate_json(self.request.body)
        except ValidationError as error:
            self.set_status(400)
            self.finish(str(error))
            return
        try:
            answer = await self._answer(asked)
        except ServiceError as error:
            self.set_status(503)
            self.finish(str(error))
            return
        self.set_header("Content-Type", "application/json")
        self.finish(answer.model_dump_json())
