"""What is to be done next. Pure: a table of rules; the first that has something to say decides the cycle."""

from collections.abc import Callable, Iterable

from controller.agent.parts import READY
from controller.agent.services import RUNNING
from controller.gateways import NAME as GATEWAY
from controller.head.view import Action, Kind, Observed, Seen, Steps, Wanted
from controller.recipe import Stage

ALL_DOWN = "all services are down"


def next_steps(wanted: Wanted, observed: Observed) -> Steps:
    """One sentence, and actions that may be done at the same time. Called again when one of them is done."""
    rules = _UP if wanted.up else _DOWN
    for rule in rules:
        steps = rule(wanted, observed)
        if steps is not None:
            return steps
    raise AssertionError("the last rule always has something to say")


# -- up


def _other_versions(wanted: Wanted, observed: Observed) -> Steps | None:
    others = {
        number: seen.version
        for number, seen in observed.nodes.items()
        if seen.answers and seen.version != wanted.version
    }
    if not others:
        return None
    found = ", ".join(f"{_name(wanted, number)} runs {version}" for number, version in others.items())
    return Steps(f"{found}, the head {wanted.version}: pbdeploy up")


def _all_of_a_new_cluster(wanted: Wanted, observed: Observed) -> Steps | None:
    """A new cluster begins with all of its nodes; one that stands still waits a while for those that are late."""
    absent = [number for number, seen in observed.nodes.items() if not seen.answers]
    if not wanted.founded:
        waited = absent
    elif _running(wanted, observed):
        waited = []
    else:
        waited = [number for number in absent if not observed.nodes[number].missing]
    if not waited:
        return None
    silent = max(observed.nodes[number].silent_seconds for number in waited)
    return Steps(f"waiting for {_names(wanted, waited)}, silent for {silent:.0f} s")


def _prepared(wanted: Wanted, observed: Observed) -> Steps | None:
    left = [number for number, seen in observed.nodes.items() if seen.answers and not seen.prepared]
    if not left:
        return None
    actions = tuple(Action(Kind.PREPARE, number) for number in left)
    return Steps(f"{_names(wanted, left)}: engines and configuration{_why(actions, observed)}", actions)


def _first_boot(wanted: Wanted, observed: Observed) -> Steps | None:
    if wanted.founded or _running(wanted, observed) or observed.nodes[1].first_booted:
        return None
    actions = (Action(Kind.FIRST_BOOT, 1),)
    return Steps(f"{_name(wanted, 1)}: first boot{_why(actions, observed)}", actions)


def _begin_anew(wanted: Wanted, observed: Observed) -> Steps | None:
    """All nodes are there, their services run, and none serves: they have lost each other for good."""
    data = wanted.parts.data_nodes
    stages = [stage for stage in _stages(wanted, observed) if stage.service not in (READY, GATEWAY)]
    pairs = [(node.number, stage.service) for stage in stages for node in stage.nodes]
    if not wanted.founded or not all(observed.nodes[number].answers for number in data):
        return None
    lost = {number for number, service in pairs if (number, service) in observed.late}
    serving = {number for number, service in pairs if (number, service) in observed.passed}
    if serving or not lost.issuperset(_running(wanted, observed)) or not lost:
        return None
    return _stopping(wanted, observed, list(reversed(stages)), "no node serves: stopping ", " to begin anew")


def _primary(wanted: Wanted, observed: Observed) -> Steps | None:
    if observed.primary is not None or _running(wanted, observed):
        return None
    actions = (Action(Kind.CHOOSE, 0),)
    return Steps(f"looking at the disks of all nodes for the one that begins{_why(actions, observed)}", actions)


def _next_stage(wanted: Wanted, observed: Observed) -> Steps | None:
    """The first stage that is not done. What is late there is not waited for, but looked at again."""
    again: list[Action] = []
    for number, stage in enumerate(_stages(wanted, observed)):
        members = [node.number for node in stage.nodes if observed.nodes[node.number].answers]
        if stage.service == READY:
            members = [each for each in members if each not in {action.node for action in again}]
        begins = number == 0 and observed.primary is not None and not _running(wanted, observed)
        down = [each for each in members if stage.service != READY and not _runs(observed.nodes[each], stage.service)]
        starts = tuple(Action(Kind.START, each, stage.service, begins) for each in down)
        fresh = [each for each in starts if (each.kind, each.node, each.service) not in observed.failed]
        if fresh:
            return Steps(f"starting {stage.service} on {_names(wanted, [each.node for each in fresh])}", starts)
        waiting = [each for each in members if each not in down and (each, stage.service) not in observed.passed]
        checks = [Action(Kind.CHECK, each, stage.service) for each in waiting]
        awaited = [each for each in checks if (each.node, stage.service) not in observed.late]
        again += [*starts, *(each for each in checks if each not in awaited)]
        if awaited:
            who = _names(wanted, [each.node for each in awaited])
            return Steps(f"{who}: {stage.service}{_why(awaited, observed)}", (*awaited, *again))
    if not again:
        return None
    texts = sorted({f"{_name(wanted, each.node)}: {each.service}{_why([each], observed)}" for each in again})
    return Steps("; ".join(texts), tuple(again))


def _as_wanted(wanted: Wanted, observed: Observed) -> Steps:
    layout = wanted.parts.layout
    silent = [number for number, seen in observed.nodes.items() if not seen.answers]
    mute = [
        number
        for number, seen in observed.nodes.items()
        if seen.answers and GATEWAY in seen.services and not seen.serves
    ]
    if silent:
        seconds = max(observed.nodes[number].silent_seconds for number in silent)
        return Steps(f"{_names(wanted, silent)} silent for {seconds:.0f} s, {_entries(wanted, observed)}")
    if mute:
        return Steps(f"{GATEWAY} on {_names(wanted, mute)} has no answers from {layout.database}")
    count = len(wanted.parts.data_nodes)
    nodes = f"{count} node{'s' * (count > 1)}"
    return Steps(f"{layout.database} serves on {nodes}, {_entries(wanted, observed)}", whole=True)


_Rule = Callable[[Wanted, Observed], Steps | None]
_UP: tuple[_Rule, ...] = (
    _other_versions,
    _all_of_a_new_cluster,
    _prepared,
    _first_boot,
    _begin_anew,
    _primary,
    _next_stage,
    _as_wanted,
)


def entry_points(wanted: Wanted, observed: Observed) -> list[int]:
    """The nodes whose PBServer serves, as far as is known; a missing node's is none."""
    return [number for number, seen in observed.nodes.items() if seen.serves and not seen.missing]


# -- down


def _stop_stages(wanted: Wanted, observed: Observed) -> Steps | None:
    cluster = wanted.parts.cluster(running=wanted.parts.data_nodes)
    stages = [each for each in reversed(wanted.parts.stages(cluster)) if each.service != READY]
    return _stopping(wanted, observed, stages, "stopping ", "")


def _all_down(wanted: Wanted, observed: Observed) -> Steps:
    silent = [number for number, seen in observed.nodes.items() if not seen.answers]
    return Steps(f"{_names(wanted, silent)} silent, all else is down" if silent else ALL_DOWN)


_DOWN: tuple[_Rule, ...] = (_stop_stages, _all_down)


def _stopping(wanted: Wanted, observed: Observed, stages: Iterable[Stage], before: str, after: str) -> Steps | None:
    """Those of one name at once, however many stages they have started in."""
    for service in dict.fromkeys(stage.service for stage in stages):
        there = [
            number
            for number, seen in observed.nodes.items()
            if seen.answers and seen.services.get(service) in {*RUNNING, "STOPPING"}
        ]
        if there:
            actions = tuple(Action(Kind.STOP, number, service) for number in there)
            text = f"{before}{service} on {_names(wanted, there)}{after}{_why(actions, observed)}"
            return Steps(text, actions)
    return None


# -- what is seen


def _running(wanted: Wanted, observed: Observed) -> list[int]:
    """The nodes that are members of the database now, as far as is known."""
    data = wanted.parts.data_nodes
    return [
        number
        for number in data
        if any(state in RUNNING for name, state in observed.nodes[number].services.items() if name != GATEWAY)
        and not observed.nodes[number].missing
    ]


def _stages(wanted: Wanted, observed: Observed) -> list[Stage]:
    """While a chosen node begins the cluster, the stages are those of that boot."""
    parts = wanted.parts
    if observed.primary is not None:
        return parts.stages(parts.cluster(observed.primary))
    return parts.stages(parts.cluster(running=_running(wanted, observed)))


def _runs(seen: Seen, service: str) -> bool:
    return seen.services.get(service) in RUNNING


def _why(actions: Iterable[Action], observed: Observed) -> str:
    """What the last try of one of them came to."""
    for each in actions:
        text = observed.failed.get((each.kind, each.node, each.service))
        if text:
            return f": {text.strip().splitlines()[0]}"
    return ""


def _entries(wanted: Wanted, observed: Observed) -> str:
    return f"{len(entry_points(wanted, observed))} of {len(wanted.parts.layout.gateways)} entry points"


def _name(wanted: Wanted, number: int) -> str:
    node = wanted.parts.nodes[number]
    return f"{node.name} ({node.host})"


def _names(wanted: Wanted, numbers: Iterable[int]) -> str:
    return ", ".join(_name(wanted, number) for number in numbers)
