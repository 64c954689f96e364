"""Addresses that the tests share."""

from adapters.contract import Address, Table

SCOPE = b"scope\x00"


def at(key: bytes, table: Table = Table.META, scope: bytes = SCOPE) -> Address:
    return Address(table, scope, b"place", key)
