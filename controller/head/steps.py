"""What is to be done next. Pure: a table of rules; the first that has something to say decides the cycle."""

from collections.abc import Callable, Iterable, Sequence

from controller.agent.parts import READY
from controller.agent.services import RUNNING
from controller.gateways import NAME as GATEWAY
from controller.head.view import Action, Kind, Observed, Seen, Steps, Wanted
from controller.recipe import Stage

ALL_DOWN = "all services are down"
_PREPARING = "engines and configuration"


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
    """Once a cluster was whole, a node that cannot be prepared holds up nobody; as long as it runs, none does."""
    left = _unprepared(observed)
    waited = left
    if wanted.founded:
        failed = {number for kind, number, _ in observed.failed if kind is Kind.PREPARE}
        waited = [] if _running(wanted, observed) else [number for number in left if number not in failed]
    return _prepare(wanted, observed, left) if waited else None


def _first_boot(wanted: Wanted, observed: Observed) -> Steps | None:
    if wanted.founded or _running(wanted, observed) or observed.nodes[1].first_booted:
        return None
    actions = (Action(Kind.FIRST_BOOT, 1),)
    return Steps(f"{_name(wanted, 1)}: first boot{_why(actions, observed)}", actions)


def _begin_anew(wanted: Wanted, observed: Observed) -> Steps | None:
    """All nodes are there, their services run, and none serves: they have lost each other for good."""
    data = _members(wanted, observed)
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


def _admitted(wanted: Wanted, observed: Observed) -> Steps | None:
    """Whoever joins is let in first, by a member that serves, when members know who that is. A new cluster's first boot
    has let in all; there it is done before the cluster is whole, which it would not be meanwhile.
    """
    parts = wanted.parts
    if observed.admitted or not parts.recipe.admission(parts.nodes[1], parts.cluster()):
        return None
    tried = {number for kind, number, _ in observed.failed if kind is Kind.ADMIT}
    able = [
        number
        for number in _members(wanted, observed)
        if observed.nodes[number].answers and (number, READY) in observed.passed and number not in tried
    ]
    if not able:
        return None
    left = _unprepared(observed)
    if any((Kind.PREPARE, number, "") not in observed.failed for number in {*left} & {*able}):
        return _prepare(wanted, observed, left)
    return Steps(f"{_name(wanted, able[0])} lets in all nodes", (Action(Kind.ADMIT, able[0]),))


def _next_stage(wanted: Wanted, observed: Observed) -> Steps | None:
    """The first stage that is not done. What is late there is not waited for, but looked at again."""
    again = [Action(Kind.PREPARE, number) for number in _unprepared(observed)]
    absent = {number for number, seen in observed.nodes.items() if not (seen.answers and seen.prepared)}
    for number, stage in enumerate(_stages(wanted, observed)):
        members = [node.number for node in stage.nodes if node.number not in absent]
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
    texts = sorted(
        {f"{_name(wanted, each.node)}: {each.service or _PREPARING}{_why([each], observed)}" for each in again}
    )
    return Steps("; ".join(texts), tuple(again))


def _no_entry(wanted: Wanted, observed: Observed) -> Steps | None:
    """A node that is leaving is no entry point from the moment that is wanted; here its PBServer ends."""
    there = [number for number in wanted.parts.leaving if _has(observed.nodes[number], GATEWAY)]
    if not there:
        return None
    actions = tuple(Action(Kind.STOP, number, GATEWAY) for number in there)
    return Steps(f"{_names(wanted, there)} leaving: stopping {GATEWAY}{_why(actions, observed)}", actions)


def _renewed(wanted: Wanted, observed: Observed) -> Steps | None:
    """PBServers that know other nodes than there are begin anew, one at a time, while all others serve."""
    stale = [number for number in wanted.parts.entries if GATEWAY in observed.nodes[number].stale]
    serving = entry_points(wanted, observed)
    ready = [
        number for number in stale if observed.nodes[number].answers and {*wanted.parts.entries} == {number, *serving}
    ]
    if not ready:
        return None
    action = Action(Kind.STOP, ready[-1], GATEWAY)
    return Steps(f"{GATEWAY} on {_name(wanted, action.node)} gets other nodes{_why([action], observed)}", (action,))


def _leave(wanted: Wanted, observed: Observed) -> Steps | None:
    """One at a time, and only when all nodes are there."""
    members = _members(wanted, observed)
    left = [number for number in wanted.parts.leaving if number in members]
    if not left or not all(observed.nodes[number].answers for number in members):
        return None
    action = Action(Kind.LEAVE, left[0])
    how_far = observed.nodes[left[0]].leaving
    text = f"{_name(wanted, left[0])}: its data moves to the other nodes{', ' * bool(how_far)}{how_far}"
    return Steps(f"{text}{_why([action], observed)}", (action,))


def _parted(wanted: Wanted, observed: Observed) -> Steps | None:
    """What a node has run that has given up its data is stopped in the reverse order of the boot."""
    cluster = wanted.parts.cluster(running=wanted.parts.data_nodes)
    gone = [number for number in wanted.parts.leaving if number not in _members(wanted, observed)]
    for service in dict.fromkeys(stage.service for stage in reversed(wanted.parts.recipe.stages(cluster))):
        there = [number for number in gone if _has(observed.nodes[number], service)]
        if there:
            actions = tuple(Action(Kind.STOP, number, service) for number in there)
            text = f"{_names(wanted, there)} has given up its data: stopping {service}"
            return Steps(f"{text}{_why(actions, observed)}", actions)
    return None


def _as_wanted(wanted: Wanted, observed: Observed) -> Steps:
    layout = wanted.parts.layout
    silent = [number for number, seen in observed.nodes.items() if not seen.answers]
    mute = [
        number
        for number, seen in observed.nodes.items()
        if seen.answers and number in wanted.parts.entries and not seen.serves
    ]
    if silent:
        seconds = max(observed.nodes[number].silent_seconds for number in silent)
        return Steps(f"{_names(wanted, silent)} silent for {seconds:.0f} s, {_entries(wanted, observed)}")
    if mute:
        return Steps(f"{GATEWAY} on {_names(wanted, mute)} has no answers from {layout.database}")
    parted = [number for number in wanted.parts.leaving if number not in _members(wanted, observed)]
    count = len(_members(wanted, observed))
    nodes = f"{count} node{'s' * (count > 1)}"
    before = f"{_names(wanted, parted)} has left; " if parted else ""
    return Steps(f"{before}{layout.database} serves on {nodes}, {_entries(wanted, observed)}", whole=True)


_Rule = Callable[[Wanted, Observed], Steps | None]
_UP: tuple[_Rule, ...] = (
    _other_versions,
    _all_of_a_new_cluster,
    _prepared,
    _first_boot,
    _begin_anew,
    _primary,
    _admitted,
    _next_stage,
    _no_entry,
    _renewed,
    _leave,
    _parted,
    _as_wanted,
)


def entry_points(wanted: Wanted, observed: Observed) -> list[int]:
    """The nodes whose PBServer serves, as far as is known; a missing node's is none, nor one's that is leaving."""
    return [number for number in wanted.parts.entries if _serves(observed.nodes[number])]


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
        there = [number for number, seen in observed.nodes.items() if _has(seen, service)]
        if there:
            actions = tuple(Action(Kind.STOP, number, service) for number in there)
            text = f"{before}{service} on {_names(wanted, there)}{after}{_why(actions, observed)}"
            return Steps(text, actions)
    return None


def _prepare(wanted: Wanted, observed: Observed, numbers: Sequence[int]) -> Steps:
    actions = tuple(Action(Kind.PREPARE, number) for number in numbers)
    return Steps(f"{_names(wanted, numbers)}: {_PREPARING}{_why(actions, observed)}", actions)


# -- what is seen


def _running(wanted: Wanted, observed: Observed) -> list[int]:
    """The nodes on which the database runs now, as far as is known."""
    return [
        number
        for number in _members(wanted, observed)
        if any(state in RUNNING for name, state in observed.nodes[number].services.items() if name != GATEWAY)
        and not observed.nodes[number].missing
    ]


def _members(wanted: Wanted, observed: Observed) -> list[int]:
    """The nodes that keep data, without those that have given it up."""
    gone = [number for number in wanted.parts.leaving if observed.nodes[number].left]
    return [number for number in wanted.parts.data_nodes if number not in gone]


def _unprepared(observed: Observed) -> list[int]:
    return [number for number, seen in observed.nodes.items() if seen.answers and not seen.prepared]


def _stages(wanted: Wanted, observed: Observed) -> list[Stage]:
    """While a chosen node begins the cluster, the stages are those of that boot."""
    parts, gone = wanted.parts, {*wanted.parts.data_nodes} - {*_members(wanted, observed)}
    if observed.primary is not None:
        return parts.stages(parts.cluster(observed.primary, without=gone))
    return parts.stages(parts.cluster(running=_running(wanted, observed), without=gone))


def _has(seen: Seen, service: str) -> bool:
    """Whether it is there to be stopped."""
    return seen.answers and seen.services.get(service) in {*RUNNING, "STOPPING"}


def _serves(seen: Seen) -> bool:
    return bool(seen.serves) and not seen.missing


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
