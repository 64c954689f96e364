"""What is wrong with a cluster, from what its head says of it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from controller.agent.messages import NodeFacts, NodeStatus, Status
from controller.gateways import NAME as GATEWAY

_FEW_PARTS = 20  # of memory or disk: less than one of them is left
_RUNNING = "RUNNING"


@dataclass(frozen=True, slots=True)
class Finding:
    """`service`: whose log may say more; empty: none's. `node`: empty for the cluster as a whole."""

    node: str
    address: str
    service: str
    text: str


def findings(status: Status) -> list[Finding]:
    """What the head reports itself first; then what it goes on without but an operator should know."""
    if status.layout is None:
        return [Finding("", "", "", "nothing has been asked for yet: pbdeploy up")]
    if not status.up:
        return [Finding("", "", "", f"{status.layout.name} is down, as was asked: pbdeploy up")]
    told = [Finding(each.node, each.address, each.what, f"{each.what}: {each.text}") for each in status.troubles]
    known = {(each.node, each.service) for each in told}
    found = [each for node in status.nodes for each in _of_node(node, status.version)]
    awaited = [Finding(each.node, each.address, each.what, f"{each.what}: {each.text}") for each in status.awaited]
    more = [each for each in [*found, *awaited] if (each.node, each.service) not in known or not each.service]
    return list(dict.fromkeys([*told, *more]))


def _of_node(node: NodeStatus, version: str) -> Iterator[Finding]:
    facts = node.facts
    if facts is None:
        yield Finding(node.name, node.address, "", "its agent has never answered")
        return
    for service, text in _troubles(facts, version):
        yield Finding(node.name, node.address, service, text)


def _troubles(facts: NodeFacts, version: str) -> Iterator[tuple[str, str]]:
    """Services, or none, and what is the matter."""
    if facts.version != version:
        yield "", f"its agent is of PBServer {facts.version}, the head's of {version}: pbdeploy up"
    for name, service in facts.services.items():
        if service.state != _RUNNING:
            yield name, f"{name} is {service.state.lower()}"
    if facts.serves is False and facts.services[GATEWAY].state == _RUNNING:
        yield GATEWAY, f"{GATEWAY} runs, but has no answers from the database"
    if facts.free_mib * _FEW_PARTS < facts.disk_mib:
        yield "", f"{facts.free_mib} of {facts.disk_mib} MiB of its disk are free"
    if facts.available_mib * _FEW_PARTS < facts.memory_mib:
        yield "", f"{facts.available_mib} of {facts.memory_mib} MiB of its memory are left"
