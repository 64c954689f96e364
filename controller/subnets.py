"""A loopback subnet of its own for every local cluster, so that each node has an address with all ports free."""

import random
from collections.abc import Iterable

import psutil

_MOST_TRIES = 1000


def hosts(subnet: str, nodes: int) -> list[str]:
    """`127.20.30` -> 127.20.30.1, 127.20.30.2, ..."""
    return [f"{subnet}.{number}" for number in range(1, nodes + 1)]


def listeners(subnet: str) -> list[str]:
    """What listens in a subnet now, as sorted `HOST:PORT`."""
    found = (connection.laddr for connection in psutil.net_connections("tcp4") if connection.status == "LISTEN")
    return sorted(
        f"{address.ip}:{address.port}" for address in found if address and address.ip.startswith(f"{subnet}.")
    )


def choose(taken: Iterable[str], chance: random.Random) -> str:
    """A subnet in which none of the addresses `taken` lies. By chance, so that two clusters that boot at the same
    time do not meet.
    """
    used = {address.rpartition(".")[0] for address in taken}
    for _ in range(_MOST_TRIES):
        subnet = f"127.{chance.randint(1, 254)}.{chance.randint(0, 255)}"
        if subnet not in used:
            return subnet
    raise OSError("no loopback subnet is free")


def free() -> str:
    """A subnet in which nothing listens."""
    addresses = [connection.laddr for connection in psutil.net_connections("tcp4")]
    return choose([address.ip for address in addresses if address], random.SystemRandom())
