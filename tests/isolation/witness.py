"""The proof that a history is right: an order of its transactions, played through one after the other.

That it shares nothing with the search for cycles is the point: a mistake there cannot let an anomaly pass.
"""

from collections.abc import Container, Iterable

from tests.isolation.facts import Facts, is_doubtful
from tests.isolation.history import How, Outcome


def objections(facts: Facts, order: Iterable[int], placed: Container[int]) -> list[str]:
    """What a single client doing the transactions in this order would have seen differently, or at other times.

    Of transactions that were not acknowledged only the writes in `placed` are done: those whose effect was seen.
    """
    found = []
    states: dict[str, tuple[int, ...]] = {}
    latest_start = 0
    order = list(order)
    if sorted(order) != list(range(len(facts.history))):
        found.append("the order does not hold every transaction once")
    for index in order:
        transaction = facts.history[index]
        if transaction.outcome is not Outcome.UNKNOWN and transaction.end < latest_start:
            found.append(f"T{index} ended before a transaction began that is placed before it")
        latest_start = max(latest_start, transaction.start)
        for read in transaction.reads:
            if read.seen != states.get(read.object, ()) and not is_doubtful(facts, index, read):
                state = states.get(read.object, ())[-3:]
                found.append(f"T{index} read {read.object} = ..{[*read.seen[-3:]]}, not ..{[*state]}")
        if index in facts.applied:
            acknowledged = transaction.outcome is Outcome.OK
            for write in (each for each in transaction.last_writes() if acknowledged or each.id in placed):
                before = states.get(write.object, ())
                after = {How.APPEND: (*before, write.id), How.PUT: (write.id,), How.DELETE: ()}
                states[write.object] = after[write.how]
    return found
