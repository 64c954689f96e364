"""LMDB: the embedded, ordered default store; several processes share one path.

`gate` keeps threads off the memory map while it grows, `pages` and `files` look at a directory before LMDB does and
lock it, `connection` opens one environment, `commits` groups the writes of many threads into one transaction, `store`
puts two environments (durable, volatile) behind the contract.
"""
