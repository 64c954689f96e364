"""Service datastore_v3: messages in, messages out; all meaning is in pbserver.datastore.

The table below is the list of supported calls; each takes a Call and the serialized request, and gives the pieces of
the serialized answer.
"""

from collections.abc import Callable, Sequence

from pbserver.handlers.v3 import entities, ids, indexes, queries, transactions
from pbserver.handlers.v3.call import Call

Handler = Callable[[Call, bytes], Sequence[bytes]]

HANDLERS: dict[bytes, Handler] = {
    b"Get": entities.get,
    b"Put": entities.put,
    b"Touch": entities.touch,
    b"Delete": entities.delete,
    b"RunQuery": queries.run_query,
    b"AddActions": transactions.add_actions,
    b"Next": queries.next_batch,
    b"DeleteCursor": queries.delete_cursor,
    b"BeginTransaction": transactions.begin_transaction,
    b"Commit": transactions.commit,
    b"Rollback": transactions.rollback,
    b"AllocateIds": ids.allocate_ids,
    b"CreateIndex": indexes.create_index,
    b"UpdateIndex": indexes.update_index,
    b"GetIndices": indexes.get_indices,
    b"DeleteIndex": indexes.delete_index,
    b"Count": queries.count,
}

#: The calls that are answered only once the store has made something durable.
WRITES = frozenset((b"Put", b"Delete", b"Commit", b"AllocateIds", b"CreateIndex", b"UpdateIndex", b"DeleteIndex"))

__all__ = ["HANDLERS", "WRITES", "Call", "Handler"]
