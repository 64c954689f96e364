"""ndb: transactions, alone and against each other. "Another client" is a second thread of the app."""

from collections.abc import Callable
from typing import Any

import pytest
from google.appengine.api import datastore_errors
from google.appengine.ext import ndb

from tests.e2e.sdk import in_threads

pytestmark = pytest.mark.usefixtures("sdk")


class Account(ndb.Model):
    balance = ndb.IntegerProperty()


def elsewhere(work: Callable[[], Any]) -> Any:
    """Does `work` as another client, to the end, now."""
    return in_threads(1, lambda _: work(), [None])[0]


def balances(keys: list[Any]) -> list[int | None]:
    return [account and account.balance for account in ndb.get_multi(keys)]


@pytest.fixture
def accounts(sdk: None) -> list[Any]:
    """Keys of 30 accounts, each an entity group, each with 10."""
    return ndb.put_multi([Account(id=f"a{number:02}", balance=10) for number in range(30)])


def test_a_transaction_does_all_of_its_writes() -> None:
    root = ndb.Key("Bank", "b")
    gone = Account(parent=root, id="gone", balance=1).put()

    def work() -> list[Any]:
        gone.delete()
        return ndb.put_multi([Account(parent=root, id=f"a{number}", balance=number) for number in range(20)])

    keys = ndb.transaction(work)
    assert balances([gone, *keys]) == [None, *range(20)]
    assert Account.query(ancestor=root).count() == 20
    assert Account.query(Account.balance >= 10).count() == 10


def test_an_exception_undoes_everything(accounts: list[Any]) -> None:
    def work() -> None:
        Account(key=accounts[0], balance=99).put()
        Account(parent=accounts[0], balance=99).put()
        ndb.Key("Note", 1, parent=accounts[0]).delete()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ndb.transaction(work)
    assert balances(accounts[:1]) == [10]
    assert Account.query(Account.balance == 99).count() == 0
    assert Account.query().count() == 30


def test_a_rollback_is_silent_and_the_next_transaction_works(accounts: list[Any]) -> None:
    def work() -> None:
        Account(key=accounts[0], balance=99).put()
        raise ndb.Rollback

    assert ndb.transaction(work) is None
    assert balances(accounts[:1]) == [10]
    ndb.transaction(lambda: Account(key=accounts[0], balance=11).put())
    assert balances(accounts[:1]) == [11]


def test_the_last_write_of_a_key_counts(accounts: list[Any]) -> None:
    def work() -> None:
        first, second, third = accounts[:3]
        Account(key=first, balance=1).put()
        Account(key=first, balance=2).put()
        second.delete()
        Account(key=second, balance=3).put()
        Account(key=third, balance=4).put()
        third.delete()

    ndb.transaction(work, xg=True)
    assert balances(accounts[:3]) == [2, 3, None]


def test_a_transaction_without_xg_is_refused_a_second_group(accounts: list[Any]) -> None:
    for touch in (
        lambda: ndb.get_multi(accounts[:2]),
        lambda: [accounts[0].get(), Account(key=accounts[1], balance=0).put()],
        lambda: [Account(key=key, balance=0).put() for key in accounts[:2]],
        lambda: [accounts[0].delete(), accounts[1].delete()],
        lambda: [accounts[0].get(), Account.query(ancestor=accounts[1]).fetch()],
    ):
        with pytest.raises(datastore_errors.BadRequestError, match="xg=True"):
            ndb.transaction(touch)
    assert balances(accounts) == [10] * 30


def test_twenty_five_groups_are_allowed_and_change_together(accounts: list[Any]) -> None:
    def work() -> None:
        for account in ndb.get_multi(accounts[:25]):
            account.balance += 1
            account.put()

    ndb.transaction(work, xg=True)
    assert balances(accounts) == [11] * 25 + [10] * 5


@pytest.mark.parametrize("touch", ["get", "put", "delete"])
def test_the_twenty_sixth_group_is_refused(accounts: list[Any], touch: str) -> None:
    touches = {
        "get": ndb.get_multi,
        "put": lambda keys: ndb.put_multi([Account(key=key, balance=0) for key in keys]),
        "delete": ndb.delete_multi,
    }

    def work() -> None:
        touches[touch](accounts[:25])
        touches[touch](accounts[25:26])

    with pytest.raises(datastore_errors.BadRequestError, match="too many entity groups"):
        ndb.transaction(work, xg=True)
    assert balances(accounts) == [10] * 30


def test_an_auto_id_is_known_inside_the_transaction(accounts: list[Any]) -> None:
    def work() -> list[Any]:
        child = Account(parent=accounts[0], balance=1).put()
        root = Account(balance=2).put()
        assert child.id()
        assert root.id()
        return [child, root, *ndb.put_multi([Account(parent=accounts[0], balance=3) for _ in range(10)])]

    keys = ndb.transaction(work, xg=True)
    assert len(set(keys)) == 12
    assert balances(keys) == [1, 2] + [3] * 10


def test_auto_ids_of_a_transaction_that_failed_name_nothing() -> None:
    keys: list[Any] = []

    def work() -> None:
        keys.append(Account(balance=1).put())
        raise ndb.Rollback

    ndb.transaction(work)
    assert balances(keys) == [None]
    assert Account(balance=2).put() not in keys


def test_a_plain_put_invalidates_the_transaction_and_the_sdk_repeats_it(accounts: list[Any]) -> None:
    attempts: list[int] = []

    def work() -> None:
        account = accounts[0].get()
        attempts.append(account.balance)
        if len(attempts) == 1:
            elsewhere(lambda: Account(key=accounts[0], balance=100).put())
        account.balance += 1
        account.put()

    ndb.transaction(work)
    assert attempts == [10, 100]
    assert balances(accounts[:1]) == [101]


@pytest.mark.parametrize("change", ["put", "delete", "child", "transaction"])
def test_any_change_of_a_group_that_was_read_fails_the_commit(accounts: list[Any], change: str) -> None:
    changes: dict[str, Callable[[], Any]] = {
        "put": lambda: Account(key=accounts[0], balance=7).put(),
        "delete": accounts[0].delete,
        "child": lambda: Account(parent=accounts[0], id="child").put(),
        "transaction": lambda: ndb.transaction(lambda: Account(key=accounts[0], balance=7).put()),
    }

    def work() -> None:
        accounts[0].get()
        elsewhere(changes[change])
        Account(key=accounts[1], balance=99).put()

    with pytest.raises(datastore_errors.TransactionFailedError):
        ndb.transaction(work, xg=True, retries=0)
    assert balances(accounts[1:2]) == [10]
    assert Account.query(Account.balance == 99).count() == 0


def test_reading_a_missing_entity_also_guards_its_place() -> None:
    def work() -> None:
        assert ndb.Key(Account, "new").get() is None
        elsewhere(lambda: Account(id="new", balance=1).put())
        Account(id="new", balance=2).put()

    with pytest.raises(datastore_errors.TransactionFailedError):
        ndb.transaction(work, retries=0)
    assert balances([ndb.Key(Account, "new")]) == [1]


def test_a_change_of_another_group_does_not_matter(accounts: list[Any]) -> None:
    def work() -> None:
        account = accounts[0].get()
        elsewhere(lambda: Account(key=accounts[1], balance=7).put())
        account.balance += 1
        account.put()

    ndb.transaction(work, retries=0)
    assert balances(accounts[:2]) == [11, 7]


def test_write_skew_is_prevented(accounts: list[Any]) -> None:
    """Each transaction empties one of two accounts if together they hold 20; only one may."""
    attempts: list[int] = []

    def empty(key: Any) -> bool:
        total = sum(account.balance for account in ndb.get_multi(accounts[:2]))
        if key == accounts[0]:
            attempts.append(total)
            if len(attempts) == 1:
                assert elsewhere(lambda: ndb.transaction(lambda: empty(accounts[1]), xg=True))
        if total == 20:
            Account(key=key, balance=0).put()
        return total == 20

    assert not ndb.transaction(lambda: empty(accounts[0]), xg=True)
    assert attempts == [20, 10]
    assert balances(accounts[:2]) == [10, 0]


def test_reads_of_one_transaction_never_mix_two_states(accounts: list[Any]) -> None:
    def both(balance: int) -> None:
        ndb.transaction(lambda: ndb.put_multi([Account(key=key, balance=balance) for key in accounts[:2]]), xg=True)

    def work() -> list[int | None]:
        first = balances(accounts[:1])
        elsewhere(lambda: both(50))
        return first + balances(accounts[1:2])

    try:
        seen = ndb.transaction(work, xg=True, retries=0)
    except datastore_errors.TransactionFailedError:
        return  # refusing is as good as an old state
    assert seen == [10, 10]


def test_what_a_transaction_wrote_is_invisible_until_it_commits(accounts: list[Any]) -> None:
    def work() -> None:
        Account(key=accounts[0], balance=99).put()
        Account(parent=accounts[0], balance=99).put()
        ndb.get_context().flush()
        assert elsewhere(lambda: balances(accounts[:1])) == [10]
        assert elsewhere(lambda: Account.query(Account.balance == 99).count()) == 0

    ndb.transaction(work)
    assert Account.query(Account.balance == 99).count() == 2


def test_an_ancestor_query_in_a_transaction_guards_its_group(accounts: list[Any]) -> None:
    attempts: list[int] = []

    def work() -> None:
        attempts.append(Account.query(ancestor=accounts[0]).count())
        if len(attempts) == 1:
            elsewhere(lambda: Account(parent=accounts[0]).put())
        Account(parent=accounts[0]).put()

    ndb.transaction(work)
    assert attempts == [1, 2]
    assert Account.query(ancestor=accounts[0]).count() == 3


def test_a_query_without_an_ancestor_is_refused_in_a_transaction(accounts: list[Any]) -> None:
    with pytest.raises(datastore_errors.BadRequestError, match="ancestor"):
        ndb.transaction(lambda: Account.query().fetch())


def test_a_transaction_that_only_reads_or_does_nothing_commits(accounts: list[Any]) -> None:
    assert ndb.transaction(lambda: balances(accounts[:25]), xg=True) == [10] * 25
    assert ndb.transaction(lambda: "nothing") == "nothing"


def test_callbacks_run_after_the_commit_only(accounts: list[Any]) -> None:
    done: list[str] = []

    def work(*, fail: bool) -> None:
        Account(key=accounts[0], balance=1).put()
        ndb.get_context().call_on_commit(lambda: done.append("committed"))
        assert not done
        if fail:
            raise ndb.Rollback

    ndb.transaction(lambda: work(fail=True))
    assert done == []
    ndb.transaction(lambda: work(fail=False))
    assert done == ["committed"]
