"""The head's way to the agents: over TLS, with the cluster's secret."""

import ssl
from typing import TypeVar

from pydantic import SecretStr, ValidationError
from tornado.httpclient import AsyncHTTPClient, HTTPError

from adapters.hosts import Host
from controller.agent.home import Home
from controller.agent.messages import Message
from controller.causes import cause

_Answer = TypeVar("_Answer", bound=Message)
_CONNECT_SECONDS = 3.0
_MOST_CALLS = 64


class Unanswered(Exception):
    """No answer in time, or none that counts; what was asked for may have happened."""


class Agents:
    """Calls to the agents of one cluster, all on the same port."""

    def __init__(self, home: Home, secret: SecretStr) -> None:
        self._secret = secret
        self._context = ssl.create_default_context(cafile=str(home.agent / "ca.pem"))
        self._client = AsyncHTTPClient(force_instance=True, max_clients=_MOST_CALLS)

    async def call(
        self, host: str, port: int, name: str, asked: Message, answer: type[_Answer], seconds: float
    ) -> _Answer:
        """Raises Unanswered."""
        place = Host(host, port)
        try:
            response = await self._client.fetch(
                f"https://{place}/{name}",
                method="POST",
                body=asked.model_dump_json(),
                headers={"Authorization": f"Bearer {self._secret.get_secret_value()}"},
                ssl_options=self._context,
                connect_timeout=_CONNECT_SECONDS,
                request_timeout=seconds,
            )
            return answer.model_validate_json(response.body)
        except HTTPError as error:
            said = error.response.body.decode(errors="replace")[:500] if error.response else ""
            raise Unanswered(f"{place}: {said or error}") from error
        except (OSError, ValidationError) as error:
            raise Unanswered(f"{place}: {cause(error)}") from error
