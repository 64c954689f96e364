"""The nodes of a database that a store URL names: HOST:PORT,HOST:PORT."""

import re
from typing import NamedTuple

from adapters.errors import Unsupported

_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z._-]+))(?::(?P<port>[0-9]{1,5}))?")


class Host(NamedTuple):
    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


def parse_hosts(store: str, text: str, default_port: int, example: str) -> tuple[Host, ...]:
    """Raises Unsupported for what is no list of hosts, with the example, and for a host that is given twice."""
    hosts = []
    for each in text.split(","):
        match = _HOST.fullmatch(each)
        port = int(match["port"] or default_port) if match else 0
        if match is None or not 0 < port < 1 << 16:
            raise Unsupported(f"{store}: {each!r} is not HOST or HOST:PORT; write {example}")
        hosts.append(Host(match["six"] or match["name"], port))
    if len(set(hosts)) != len(hosts):
        raise Unsupported(f"{store}: a host is given twice in {text!r}")
    return tuple(hosts)
