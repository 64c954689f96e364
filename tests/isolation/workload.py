"""Clients that quarrel over a few objects: transfers, counters, lists, pairs that must not both be emptied, registers.

Every client is a thread with a connection of its own; threads are spread over processes, because one Python process
cannot keep a server busy. Each epoch has objects of its own, so that lists stay short and every object begins absent;
all clients of a process pass from one epoch to the next together, and those of other processes at about that time.
"""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

from tests.isolation.client import Attempt, Client, State
from tests.isolation.history import History, Transaction

ACCOUNTS = 4
FIRST_BALANCE = 100
FULL = 2  #: what each half of a pair holds at first; both together never go below 1
CHILDREN = ("1", "2", "3")

_CALLS_PER_EPOCH = 220
_GETS_AT_ONCE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`calls`: of all clients together, at least. `first_client`: clients of two runs must not share numbers.
    `other_ports`: of more servers over the same store; clients are dealt out to all of them.
    """

    port: int
    other_ports: tuple[int, ...] = ()
    calls: int
    processes: int = 2
    threads: int = 8
    first_client: int = 1


def run(plan: Plan) -> History:
    """Does the plan, and at last reads every object once more, so that no acknowledged write goes unseen."""
    with ProcessPoolExecutor(plan.processes, mp_context=get_context("spawn")) as pool:
        shares = [replace(plan, first_client=plan.first_client + n * plan.threads) for n in range(plan.processes)]
        history = [transaction for part in pool.map(_run_share, shares) for transaction in part]
    return history + look_at_all(plan.port, plan.first_client + plan.processes * plan.threads, history)


def _run_share(plan: Plan) -> History:
    """The part of one process."""
    ports = (plan.port, *plan.other_ports)
    clients = [Client(plan.first_client + number, ports[number % len(ports)]) for number in range(plan.threads)]
    with ThreadPoolExecutor(plan.threads) as pool:
        for _ in pool.map(lambda client: _work(client, clients, plan.calls // plan.processes), clients):
            pass
    return [transaction for client in clients for transaction in client.history]


def _work(client: Client, clients: list[Client], calls: int) -> None:
    """Until the clients of this process have made so many calls together."""
    acts, weights = zip(*_MIX.items(), strict=True)
    while (made := sum(each.connection.calls for each in clients)) < calls:
        act = client.random.choices(acts, weights)[0]
        act(client, made // (_CALLS_PER_EPOCH * len(clients)))
    client.connection.close()


def look_at_all(port: int, number: int, history: History) -> History:
    """Plain gets of every object that the history names, by a client of this number."""
    client = Client(number, port)
    names = sorted({done.object for transaction in history for done in transaction.reads + transaction.writes})
    for at in range(0, len(names), _GETS_AT_ONCE):
        client.plain_get(*names[at : at + _GETS_AT_ONCE])
    client.connection.close()
    return client.history


def accounts(epoch: int) -> list[str]:
    return [f"account-{epoch}-{number}" for number in range(ACCOUNTS)]


def _counters(epoch: int) -> list[str]:
    return [f"counter-{epoch}-{number}" for number in range(2)]


def _pairs(epoch: int) -> list[tuple[str, str]]:
    return [(f"pair-{epoch}-{number}-left", f"pair-{epoch}-{number}-right") for number in range(2)]


def _list_roots(epoch: int) -> list[str]:
    return [f"list-{epoch}-{number}" for number in range(2)]


def _register_roots(epoch: int) -> list[str]:
    return [f"register-{epoch}-{number}" for number in range(3)]


def _children(root: str) -> list[str]:
    return [f"{root}/{child}" for child in CHILDREN]


def _registers(epoch: int) -> list[str]:
    return [name for root in _register_roots(epoch) for name in (root, *_children(root))]


def _transfer(client: Client, epoch: int) -> None:
    names = client.random.sample(accounts(epoch), 2)

    def act(attempt: Attempt) -> bool:
        states = _read(client.random, attempt, names)
        source, target = (states[name].value if states[name].seen else FIRST_BALANCE for name in names)
        amount = client.random.randint(1, 5)
        attempt.append(states, {names[0]: source - amount, names[1]: target + amount})
        return True

    client.transaction("transfer", act)


def _read(chance: random.Random, attempt: Attempt, names: list[str]) -> dict[str, State]:
    """At once or one after the other."""
    if chance.random() < 0.3:
        return dict(zip(names, attempt.get(*names), strict=True))
    return {name: attempt.get(name)[0] for name in names}


def _count(client: Client, epoch: int) -> None:
    """Some think twice before they commit, some give up: what they put at first must never be seen."""
    name = client.random.choice(_counters(epoch))
    first, commits = client.random.random() < 0.15, client.random.random() > 0.15

    def act(attempt: Attempt) -> bool:
        states = {name: attempt.get(name)[0]}
        if first:
            attempt.append(states, {name: -1})
        attempt.append(states, {name: states[name].value + 1})
        return commits

    client.transaction("count" if commits else "give up", act)


def _take(client: Client, epoch: int) -> None:
    """Takes one from a half of a pair if both together allow it, else fills that half."""
    pair = client.random.choice(_pairs(epoch))
    half = client.random.choice(pair)

    def act(attempt: Attempt) -> bool:
        states = _read(client.random, attempt, [*pair])
        left = {name: state.value if state.seen else FULL for name, state in states.items()}
        attempt.append(states, {half: left[half] - 1 if sum(left.values()) > 1 else FULL})
        return True

    client.transaction("take", act)


def _list(client: Client, epoch: int) -> None:
    """Reads a group by a query, in batches at times, and appends to one of it; which one may be the root."""
    root = client.random.choice(_list_roots(epoch))
    by_value, count = client.random.random() < 0.3, client.random.choice((2, 1000))

    def act(attempt: Attempt) -> bool:
        names = [root, *_children(root)]
        states = dict(zip(names, attempt.query(root, names[1:], by_value=by_value, count=count), strict=True))
        name = client.random.choice(names)
        attempt.append(states, {name: len(states[name].seen) + 1})
        return True

    client.transaction("list", act)


def _audit(client: Client, epoch: int) -> None:
    names = client.random.sample(accounts(epoch), ACCOUNTS)
    client.transaction("audit", lambda attempt: bool(_read(client.random, attempt, names)), read_only=True)


def _look_around(client: Client, epoch: int) -> None:
    """A read-only transaction over all that others write one by one."""
    root = client.random.choice(_list_roots(epoch))
    names = [*client.random.choice(_pairs(epoch)), *_counters(epoch), *client.random.sample(_registers(epoch), 2)]
    client.random.shuffle(names)

    def act(attempt: Attempt) -> bool:
        attempt.query(root, _children(root))
        return bool(_read(client.random, attempt, names))

    client.transaction("look around", act, read_only=True)


def _move_registers(client: Client, epoch: int) -> None:
    """Puts one register for two that were read, and may delete another."""
    first, second, third = client.random.sample(_registers(epoch), 3)
    deletes = client.random.random() < 0.2

    def act(attempt: Attempt) -> bool:
        _read(client.random, attempt, [first, second])
        attempt.put(first)
        if deletes:
            attempt.delete(third)
        return True

    client.transaction("move registers", act)


def _put(client: Client, epoch: int) -> None:
    """One register, or several of one group at once."""
    root = client.random.choice(_register_roots(epoch))
    names = client.random.sample([root, *_children(root)], client.random.choice((1, 1, 3)))
    client.plain("put", lambda attempt: attempt.put(*names))


def _delete(client: Client, epoch: int) -> None:
    name = client.random.choice(_registers(epoch))
    client.plain("delete", lambda attempt: attempt.delete(name))


def _get(client: Client, epoch: int) -> None:
    roots = accounts(epoch) + _counters(epoch) + _list_roots(epoch)
    client.plain_get(*client.random.sample(_registers(epoch) + roots, 3))


def _query(client: Client, epoch: int) -> None:
    root = client.random.choice(_list_roots(epoch) + _register_roots(epoch))
    by_value = client.random.random() < 0.5
    client.plain("query", lambda attempt: attempt.query(root, _children(root), by_value=by_value))


_MIX: dict[Callable[[Client, int], None], int] = {
    _transfer: 16,
    _count: 10,
    _take: 14,
    _list: 12,
    _move_registers: 10,
    _audit: 6,
    _look_around: 5,
    _put: 9,
    _delete: 3,
    _get: 10,
    _query: 5,
}


def broken_promises(history: History) -> Iterator[str]:
    """What the workload's own sums say, without any theory: money, counters, pairs.

    Of each transaction's reads alone, committed or not; plain gets of several objects are lines of their own.
    """
    for index, transaction in enumerate(history):
        values = {read.object: read.value for read in transaction.reads}
        for problem in _wrong_sums(transaction, values):
            yield f"T{index} ({transaction.name}): {problem}"


def _wrong_sums(transaction: Transaction, values: dict[str, int | None]) -> Iterator[str]:
    for name, value in values.items():
        kind, epoch = name.split("-")[0], int(name.split("-")[1])
        if kind == "account" and name == accounts(epoch)[0] and values.keys() >= {*accounts(epoch)}:
            total = _sum(values, accounts(epoch), FIRST_BALANCE)
            if total != ACCOUNTS * FIRST_BALANCE:
                yield f"the accounts of epoch {epoch} hold {total}"
        if kind == "pair" and (other := name.replace("-left", "-right")) != name and other in values:
            together = _sum(values, [name, other], FULL)
            if together < 1:
                yield f"{name} and its other half hold {together}"
        if kind == "counter":
            times = next(len(read.seen) for read in transaction.reads if read.object == name)
            if times != (value or 0):
                yield f"{name} is {value} after {times} times"


def _sum(values: dict[str, int | None], names: list[str], first: int) -> int:
    found = [values[name] for name in names]
    return sum(first if value is None else value for value in found)
