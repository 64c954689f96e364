"""The contract as tests, for any adapter: `pbserver conformance --store URL --delete-all-rows`.

Needs the `test` extra (pytest, hypothesis). tests/conformance runs it on all stores and layers of this repository.

A test asks for a store by what it needs (matrix.py) and is run on every store of the matrix that claims it; what is
not claimed, test_refusals.py sees refused. So a test is never skipped, and no capability goes untested.
"""
