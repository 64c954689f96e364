"""Which nodes a cluster may have next, while it is up. Pure: layouts in, what stands against it out."""

from controller.agent.parts import Parts
from controller.databases import recipe as recipe_called
from controller.layout import QUORUM_STAYS, Layout, Machine, Role
from controller.recipe import Membership


def same(before: Layout, after: Layout) -> bool:
    """Whether both have the same nodes in the same state."""
    return _nodes(before) == _nodes(after) and _leaving(before) == _leaving(after)


def not_while_up(before: Layout, after: Layout) -> list[str]:
    """What of the change from one to the other cannot be done while the cluster is up; empty: all can."""
    old, new = _nodes(before), _nodes(after)
    wrong = [
        f"{address} is not in the file any more; put it back, `pbdeploy remove-node` takes a node out"
        for address in old.keys() - new.keys() - _leaving(before)
    ]
    wrong += [
        f"the number or the roles of {address} changed; pbdeploy down first"
        for address in old.keys() & new.keys()
        if old[address] != new[address]
    ]
    wrong += [
        f"{address} is leaving, and cannot be kept any more: leaving = true"
        for address in (_leaving(before) & new.keys()) - _leaving(after)
    ]
    tokens = {each.address: each.tokens for each in before.nodes}
    wrong += [
        f"the tokens of {each.address} changed; the node keeps those that it has"
        for each in after.nodes
        if tokens.get(each.address, each.tokens) != each.tokens
    ]
    if quorum := Parts(after).other_quorum(Parts(before).keepers):
        wrong.append(quorum)
    added = [each for each in after.nodes if each.address not in old and each.keeps_data and not each.leaving]
    if len(added) > 1:
        wrong.append(f"{', '.join(each.address for each in added)} are new; nodes that keep data join one at a time")
    if added and len(before.machines) < _membership(after).fewest:
        wrong.append(f"{added[0].address}: {after.database} on {len(before.machines)} is not made to grow; down first")
    return wrong


def usual_roles(layout: Layout) -> list[Role]:
    """Of a node that joins and is told none: those of the last one that keeps data, as far as more can have them."""
    like = [role for role in layout.machines[-1].roles if role is not Role.ZOOKEEPER]
    return [Role.SLAVE if role is Role.MASTER else role for role in like]


def cannot_leave(layout: Layout, machine: Machine, *, away: bool) -> list[str]:
    """Why a node has to stay. `away`: it cannot be reached, and so cannot give up its data itself."""
    first, database, membership = layout.machines[0], layout.database, _membership(layout)
    if machine == first:
        masters = " and the masters" if Role.MASTER in machine.roles else ""
        return [f"it is the first node, which has the cluster's head{masters}"]
    if machine in layout.keepers:
        return [f"it has the role zookeeper, and {QUORUM_STAYS}; remove another node"]
    if not machine.keeps_data:
        return []
    wrong = []
    others = sum(not each.leaving and each != machine for each in layout.machines)
    if others < membership.fewest:
        wrong.append(f"{database} cannot go down to {others} while it is up")
    elif database != "mysql" and others < layout.copies:
        wrong.append(f"{layout.copies} copies of every row are kept, and {others} nodes would be left; add one first")
    if away and not membership.does_without:
        wrong.append(f"it does not answer, and {database} needs it to move its data off; bring it back first")
    return wrong


def _nodes(layout: Layout) -> dict[str, object]:
    """What a node is, by its address."""
    named = any(Role.GATEWAY in each.roles for each in layout.nodes)
    numbers = layout.numbers
    return {
        each.address: (
            numbers[each.address],
            {*each.data_roles},
            Role.GATEWAY in each.roles or not named,
        )
        for each in layout.nodes
    }


def _leaving(layout: Layout) -> set[str]:
    return {each.address for each in layout.nodes if each.leaving}


def _membership(layout: Layout) -> Membership:
    return recipe_called(layout.database).MEMBERSHIP
