"""What a handler knows of its call, and the checks every family of calls shares."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from pbserver.datastore import keys
from pbserver.datastore.core import Datastore
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.keys import Key
from pbserver.datastore.transactions import Handle
from protos.datastore_v3_pb2 import Transaction

AnyMessage = TypeVar("AnyMessage", bound=Message)

MAX_GETS = 1000
MAX_MUTATIONS = 500


@dataclass(slots=True)
class Call:
    """One call. `app` is who calls: named by the front end, or else by the first key or message that names one."""

    datastore: Datastore
    deadline: float  #: time.monotonic()
    app: bytes | None

    def check_app(self, app: bytes) -> None:
        """Raises BadRequest when the call would touch another app's data."""
        if self.app is None:
            self.app = app
        elif app != self.app and _bare(app) != _bare(self.app):
            mine, other = self.app.decode(errors="replace"), app.decode(errors="replace")
            raise BadRequest(f'app "{mine}" cannot access app "{other}"\'s data')

    def check_keys(self, wanted: Iterable[Key]) -> None:
        """check_app for every key."""
        for partition in dict.fromkeys(key.partition for key in wanted):
            self.check_app(keys.app_of(partition))

    def transaction(self, message: Transaction) -> Handle:
        """The transaction a message names."""
        self.check_app(message.app)
        return Handle(message.handle, message.app)


def parse(kind: type[AnyMessage], data: bytes) -> AnyMessage:
    """The message in `data`. Raises DecodeError for garbage and where a required field is missing."""
    message = kind.FromString(data)
    if not message.IsInitialized():
        raise DecodeError(f"{kind.DESCRIPTOR.name} lacks required fields")
    return message


def _bare(app: bytes) -> bytes:
    """An app id without `s~`, which AppScale's app servers leave out. Other prefixes are other apps."""
    return app.removeprefix(b"s~")


def check_count(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise BadRequest(f"cannot {what} in a single call: {count} were given, the limit is {limit}")
