"""RunQuery, Next, Count, DeleteCursor.

A query that is not finished leaves a Continuation under the handle its client gets: the query as it was sent and
the place of the last result given out. So Next works on any worker of any node.
"""

from collections.abc import Sequence

from pbserver.datastore import catalog, keys, metadata, needs
from pbserver.datastore.composites import Composite, State
from pbserver.datastore.errors import BadRequest
from pbserver.datastore.execute import Batch, Progress, position
from pbserver.datastore.queries import Position, Query
from pbserver.handlers.v3 import query_messages
from pbserver.handlers.v3.call import Call, parse
from protos import datastore_v3_pb2 as v3
from protos.sessions_pb2 import Continuation

_DEFAULT_COUNT = 20
_FIRST, _LATER = b"q", b"r"  # the first state is created by condition, later ones carry versions: never in one row


def run_query(call: Call, data: bytes) -> Sequence[bytes]:
    message = parse(v3.Query, data)
    query = _to_query(call, message)
    progress = _begin(message)
    result = v3.QueryResult(keys_only=query.keys_only)
    if message.compile:
        result.compiled_query.primaryscan.index_name = b"pbserver"
        result.compiled_query.keys_only = query.keys_only
    batch = _run(call, message, query, progress, _count(message))
    if message.filter or message.order or message.property_name:
        _name_index(result, message, query)
    if batch.more:
        state = _state(message.app, data, progress)
        result.cursor.app = message.app
        result.cursor.cursor = call.datastore.sessions.create(_FIRST, state, deadline=call.deadline)
    return _answer(result, batch, query, progress, with_cursors=message.compile)


def next_batch(call: Call, data: bytes) -> Sequence[bytes]:
    request = parse(v3.NextRequest, data)
    number = request.cursor.cursor
    call.check_app(request.cursor.app)
    if request.count < 0 or request.offset < 0:
        raise BadRequest("count and offset must not be negative")
    state = _load(call, request.cursor)
    message = parse(v3.Query, state.query)
    query = _to_query(call, message)
    progress = Progress(
        Position(tuple(state.after.value), state.after.path, before=False) if state.HasField("after") else None,
        request.offset if request.HasField("offset") else state.offset,
        state.remaining if state.HasField("remaining") else None,
    )
    count = request.count if request.HasField("count") else _count(message)
    batch = _run(call, message, query, progress, count)
    result = v3.QueryResult(keys_only=query.keys_only)
    if batch.more:
        answers = state.answers + 1
        row = _state(message.app, state.query, progress, answers)
        call.datastore.sessions.put(number, [(_LATER, row)], version=answers, deadline=call.deadline)
        result.cursor.CopyFrom(request.cursor)
    else:
        call.datastore.sessions.delete(number, [_FIRST, _LATER], deadline=call.deadline)
    return _answer(result, batch, query, progress, with_cursors=request.compile)


def count(call: Call, data: bytes) -> Sequence[bytes]:
    """Of old SDKs; today's count by RunQuery with an offset."""
    message = parse(v3.Query, data)
    query = _to_query(call, message)
    handle = call.transaction(message.transaction) if message.HasField("transaction") else None
    total = call.datastore.count(query, _begin(message), handle, deadline=call.deadline)
    return (v3.Integer64Proto(value=total).SerializeToString(),)


def delete_cursor(call: Call, data: bytes) -> Sequence[bytes]:
    cursor = parse(v3.Cursor, data)
    call.check_app(cursor.app)
    if _find(call, cursor) is not None:
        call.datastore.sessions.delete(cursor.cursor, [_FIRST, _LATER], deadline=call.deadline)
    return (v3.VoidProto().SerializeToString(),)


def _load(call: Call, cursor: v3.Cursor) -> Continuation:
    """What is kept of an unfinished query. Raises BadRequest when there is nothing, or it is another app's."""
    state = _find(call, cursor)
    if state is None:
        raise BadRequest(f"Cursor {cursor.cursor} not found")
    return state


def _find(call: Call, cursor: v3.Cursor) -> Continuation | None:
    first, later = call.datastore.sessions.read(cursor.cursor, _FIRST, _LATER, deadline=call.deadline)
    stored = later or first
    state = Continuation.FromString(stored) if stored else None
    return state if state is not None and state.app == cursor.app else None


def _to_query(call: Call, message: v3.Query) -> Query:
    call.check_app(message.app)
    return query_messages.to_query(message)


def _begin(message: v3.Query) -> Progress:
    remaining = message.limit if message.HasField("limit") else None
    end = message.end_compiled_cursor
    if message.HasField("end_compiled_cursor") and not (end.HasField("postfix_position") or end.HasField("position")):
        remaining = 0  # an empty end cursor stands before everything
    return Progress(None, message.offset, remaining)


def _count(message: v3.Query) -> int:
    if message.HasField("count"):
        return message.count
    return message.limit if message.HasField("limit") else _DEFAULT_COUNT


def _run(call: Call, message: v3.Query, query: Query, progress: Progress, wanted: int) -> Batch:
    handle = call.transaction(message.transaction) if message.HasField("transaction") else None
    return call.datastore.query(query, progress, wanted, handle, deadline=call.deadline)


def _state(app: bytes, query: bytes, progress: Progress, answers: int = 0) -> bytes:
    state = Continuation(app=app, query=query, offset=progress.offset, answers=answers)
    if progress.after is not None:
        state.after.value.extend(progress.after.values)
        state.after.path = progress.after.path
    if progress.remaining is not None:
        state.remaining = progress.remaining
    return state.SerializeToString()


def _answer(
    result: v3.QueryResult, batch: Batch, query: Query, progress: Progress, *, with_cursors: bool
) -> Sequence[bytes]:
    """The message around the frames. Scalars come first, then the results as they were stored."""
    result.more_results = batch.more
    if batch.skipped:
        result.skipped_results = batch.skipped
    if with_cursors:
        _set_cursors(result, batch, query, progress)
    return [result.SerializeToString(), *batch.frames]


def _name_index(result: v3.QueryResult, message: v3.Query, query: Query) -> None:
    """Says which composite index the query asks for, as the SDK's index_list() shows it."""
    wanted = needs.need(query)
    if wanted is not None and not metadata.is_pseudo(query.kind):
        project = keys.partition(message.app, message.database_id, b"")
        catalog.set_index(result.index.add(), project, Composite(0, needs.recommended(wanted), State.SERVING))


def _set_cursors(result: v3.QueryResult, batch: Batch, query: Query, progress: Progress) -> None:
    planned = batch.plan
    for row, _ in batch.rows:
        place = position(planned, row)
        query_messages.set_cursor(result.result_compiled_cursor.add(), place, query)
    if batch.last_skipped is not None:
        place = position(planned, batch.last_skipped[0])
        query_messages.set_cursor(result.skipped_results_compiled_cursor, place, query)
    last = progress.after or query.start
    query_messages.set_cursor(result.compiled_cursor, last, query)
