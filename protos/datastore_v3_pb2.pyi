from protos import entity_pb2 as _entity_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VoidProto(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Integer64Proto(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: int
    def __init__(self, value: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ()
    class ErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BAD_REQUEST: _ClassVar[Error.ErrorCode]
        CONCURRENT_TRANSACTION: _ClassVar[Error.ErrorCode]
        INTERNAL_ERROR: _ClassVar[Error.ErrorCode]
        NEED_INDEX: _ClassVar[Error.ErrorCode]
        TIMEOUT: _ClassVar[Error.ErrorCode]
        PERMISSION_DENIED: _ClassVar[Error.ErrorCode]
        BIGTABLE_ERROR: _ClassVar[Error.ErrorCode]
        COMMITTED_BUT_STILL_APPLYING: _ClassVar[Error.ErrorCode]
        CAPABILITY_DISABLED: _ClassVar[Error.ErrorCode]
        TRY_ALTERNATE_BACKEND: _ClassVar[Error.ErrorCode]
        SAFE_TIME_TOO_OLD: _ClassVar[Error.ErrorCode]
        RESOURCE_EXHAUSTED: _ClassVar[Error.ErrorCode]
        NOT_FOUND: _ClassVar[Error.ErrorCode]
        ALREADY_EXISTS: _ClassVar[Error.ErrorCode]
        FAILED_PRECONDITION: _ClassVar[Error.ErrorCode]
        UNAUTHENTICATED: _ClassVar[Error.ErrorCode]
        ABORTED: _ClassVar[Error.ErrorCode]
        SNAPSHOT_VERSION_TOO_OLD: _ClassVar[Error.ErrorCode]
    BAD_REQUEST: Error.ErrorCode
    CONCURRENT_TRANSACTION: Error.ErrorCode
    INTERNAL_ERROR: Error.ErrorCode
    NEED_INDEX: Error.ErrorCode
    TIMEOUT: Error.ErrorCode
    PERMISSION_DENIED: Error.ErrorCode
    BIGTABLE_ERROR: Error.ErrorCode
    COMMITTED_BUT_STILL_APPLYING: Error.ErrorCode
    CAPABILITY_DISABLED: Error.ErrorCode
    TRY_ALTERNATE_BACKEND: Error.ErrorCode
    SAFE_TIME_TOO_OLD: Error.ErrorCode
    RESOURCE_EXHAUSTED: Error.ErrorCode
    NOT_FOUND: Error.ErrorCode
    ALREADY_EXISTS: Error.ErrorCode
    FAILED_PRECONDITION: Error.ErrorCode
    UNAUTHENTICATED: Error.ErrorCode
    ABORTED: Error.ErrorCode
    SNAPSHOT_VERSION_TOO_OLD: Error.ErrorCode
    def __init__(self) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("handle", "app", "mark_changes", "database_id")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    MARK_CHANGES_FIELD_NUMBER: _ClassVar[int]
    DATABASE_ID_FIELD_NUMBER: _ClassVar[int]
    handle: int
    app: bytes
    mark_changes: bool
    database_id: bytes
    def __init__(self, handle: _Optional[int] = ..., app: _Optional[bytes] = ..., mark_changes: _Optional[bool] = ..., database_id: _Optional[bytes] = ...) -> None: ...

class Cost(_message.Message):
    __slots__ = ("index_writes", "index_write_bytes", "entity_writes", "entity_write_bytes")
    INDEX_WRITES_FIELD_NUMBER: _ClassVar[int]
    INDEX_WRITE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENTITY_WRITES_FIELD_NUMBER: _ClassVar[int]
    ENTITY_WRITE_BYTES_FIELD_NUMBER: _ClassVar[int]
    index_writes: int
    index_write_bytes: int
    entity_writes: int
    entity_write_bytes: int
    def __init__(self, index_writes: _Optional[int] = ..., index_write_bytes: _Optional[int] = ..., entity_writes: _Optional[int] = ..., entity_write_bytes: _Optional[int] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("key", "transaction", "failover_ms", "strong", "allow_deferred")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_MS_FIELD_NUMBER: _ClassVar[int]
    STRONG_FIELD_NUMBER: _ClassVar[int]
    ALLOW_DEFERRED_FIELD_NUMBER: _ClassVar[int]
    key: _containers.RepeatedCompositeFieldContainer[_entity_pb2.Reference]
    transaction: Transaction
    failover_ms: int
    strong: bool
    allow_deferred: bool
    def __init__(self, key: _Optional[_Iterable[_Union[_entity_pb2.Reference, _Mapping]]] = ..., transaction: _Optional[_Union[Transaction, _Mapping]] = ..., failover_ms: _Optional[int] = ..., strong: _Optional[bool] = ..., allow_deferred: _Optional[bool] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("entity", "deferred", "in_order")
    class Entity(_message.Message):
        __slots__ = ("entity", "version", "key")
        ENTITY_FIELD_NUMBER: _ClassVar[int]
        VERSION_FIELD_NUMBER: _ClassVar[int]
        KEY_FIELD_NUMBER: _ClassVar[int]
        entity: bytes
        version: int
        key: _entity_pb2.Reference
        def __init__(self, entity: _Optional[bytes] = ..., version: _Optional[int] = ..., key: _Optional[_Union[_entity_pb2.Reference, _Mapping]] = ...) -> None: ...
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    DEFERRED_FIELD_NUMBER: _ClassVar[int]
    IN_ORDER_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[GetResponse.Entity]
    deferred: _containers.RepeatedCompositeFieldContainer[_entity_pb2.Reference]
    in_order: bool
    def __init__(self, entity: _Optional[_Iterable[_Union[GetResponse.Entity, _Mapping]]] = ..., deferred: _Optional[_Iterable[_Union[_entity_pb2.Reference, _Mapping]]] = ..., in_order: _Optional[bool] = ...) -> None: ...

class PutRequest(_message.Message):
    __slots__ = ("entity", "transaction", "trusted", "force", "auto_id_policy")
    class AutoIdPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CURRENT: _ClassVar[PutRequest.AutoIdPolicy]
        SEQUENTIAL: _ClassVar[PutRequest.AutoIdPolicy]
    CURRENT: PutRequest.AutoIdPolicy
    SEQUENTIAL: PutRequest.AutoIdPolicy
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    AUTO_ID_POLICY_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedScalarFieldContainer[bytes]
    transaction: Transaction
    trusted: bool
    force: bool
    auto_id_policy: PutRequest.AutoIdPolicy
    def __init__(self, entity: _Optional[_Iterable[bytes]] = ..., transaction: _Optional[_Union[Transaction, _Mapping]] = ..., trusted: _Optional[bool] = ..., force: _Optional[bool] = ..., auto_id_policy: _Optional[_Union[PutRequest.AutoIdPolicy, str]] = ...) -> None: ...

class PutResponse(_message.Message):
    __slots__ = ("key", "cost", "version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    key: _containers.RepeatedCompositeFieldContainer[_entity_pb2.Reference]
    cost: Cost
    version: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, key: _Optional[_Iterable[_Union[_entity_pb2.Reference, _Mapping]]] = ..., cost: _Optional[_Union[Cost, _Mapping]] = ..., version: _Optional[_Iterable[int]] = ...) -> None: ...

class TouchRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: _containers.RepeatedCompositeFieldContainer[_entity_pb2.Reference]
    def __init__(self, key: _Optional[_Iterable[_Union[_entity_pb2.Reference, _Mapping]]] = ...) -> None: ...

class TouchResponse(_message.Message):
    __slots__ = ("cost",)
    COST_FIELD_NUMBER: _ClassVar[int]
    cost: Cost
    def __init__(self, cost: _Optional[_Union[Cost, _Mapping]] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("trusted", "transaction", "key", "force")
    TRUSTED_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    trusted: bool
    transaction: Transaction
    key: _containers.RepeatedCompositeFieldContainer[_entity_pb2.Reference]
    force: bool
    def __init__(self, trusted: _Optional[bool] = ..., transaction: _Optional[_Union[Transaction, _Mapping]] = ..., key: _Optional[_Iterable[_Union[_entity_pb2.Reference, _Mapping]]] = ..., force: _Optional[bool] = ...) -> None: ...

class DeleteResponse(_message.Message):
    __slots__ = ("cost", "version")
    COST_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    cost: Cost
    version: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cost: _Optional[_Union[Cost, _Mapping]] = ..., version: _Optional[_Iterable[int]] = ...) -> None: ...

class CompiledCursor(_message.Message):
    __slots__ = ("postfix_position", "position", "absolute_position")
    class Position(_message.Message):
        __slots__ = ("start_key", "start_inclusive", "indexvalue", "key", "before_ascending")
        class IndexValue(_message.Message):
            __slots__ = ("property", "value")
            PROPERTY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            property: bytes
            value: _entity_pb2.PropertyValue
            def __init__(self, property: _Optional[bytes] = ..., value: _Optional[_Union[_entity_pb2.PropertyValue, _Mapping]] = ...) -> None: ...
        START_KEY_FIELD_NUMBER: _ClassVar[int]
        START_INCLUSIVE_FIELD_NUMBER: _ClassVar[int]
        INDEXVALUE_FIELD_NUMBER: _ClassVar[int]
        KEY_FIELD_NUMBER: _ClassVar[int]
        BEFORE_ASCENDING_FIELD_NUMBER: _ClassVar[int]
        start_key: bytes
        start_inclusive: bool
        indexvalue: _containers.RepeatedCompositeFieldContainer[CompiledCursor.Position.IndexValue]
        key: _entity_pb2.Reference
        before_ascending: bool
        def __init__(self, start_key: _Optional[bytes] = ..., start_inclusive: _Optional[bool] = ..., indexvalue: _Optional[_Iterable[_Union[CompiledCursor.Position.IndexValue, _Mapping]]] = ..., key: _Optional[_Union[_entity_pb2.Reference, _Mapping]] = ..., before_ascending: _Optional[bool] = ...) -> None: ...
    POSTFIX_POSITION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ABSOLUTE_POSITION_FIELD_NUMBER: _ClassVar[int]
    postfix_position: _entity_pb2.IndexPostfix
    position: CompiledCursor.Position
    absolute_position: _entity_pb2.IndexPosition
    def __init__(self, postfix_position: _Optional[_Union[_entity_pb2.IndexPostfix, _Mapping]] = ..., position: _Optional[_Union[CompiledCursor.Position, _Mapping]] = ..., absolute_position: _Optional[_Union[_entity_pb2.IndexPosition, _Mapping]] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("app", "kind", "filter", "search_query", "order", "offset", "limit", "ancestor", "keys_only", "transaction", "count", "distinct", "compile", "failover_ms", "name_space", "compiled_cursor", "end_compiled_cursor", "strong", "property_name", "group_by_property_name", "persist_offset", "database_id", "shallow")
    class Filter(_message.Message):
        __slots__ = ("op", "property")
        class Operator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            LESS_THAN: _ClassVar[Query.Filter.Operator]
            LESS_THAN_OR_EQUAL: _ClassVar[Query.Filter.Operator]
            GREATER_THAN: _ClassVar[Query.Filter.Operator]
            GREATER_THAN_OR_EQUAL: _ClassVar[Query.Filter.Operator]
            EQUAL: _ClassVar[Query.Filter.Operator]
            IN: _ClassVar[Query.Filter.Operator]
            EXISTS: _ClassVar[Query.Filter.Operator]
            CONTAINED_IN_REGION: _ClassVar[Query.Filter.Operator]
            NOT_EQUAL: _ClassVar[Query.Filter.Operator]
            NOT_IN: _ClassVar[Query.Filter.Operator]
        LESS_THAN: Query.Filter.Operator
        LESS_THAN_OR_EQUAL: Query.Filter.Operator
        GREATER_THAN: Query.Filter.Operator
        GREATER_THAN_OR_EQUAL: Query.Filter.Operator
        EQUAL: Query.Filter.Operator
        IN: Query.Filter.Operator
        EXISTS: Query.Filter.Operator
        CONTAINED_IN_REGION: Query.Filter.Operator
        NOT_EQUAL: Query.Filter.Operator
        NOT_IN: Query.Filter.Operator
        OP_FIELD_NUMBER: _ClassVar[int]
        PROPERTY_FIELD_NUMBER: _ClassVar[int]
        op: Query.Filter.Operator
        property: _containers.RepeatedCompositeFieldContainer[_entity_pb2.Property]
        def __init__(self, op: _Optional[_Union[Query.Filter.Operator, str]] = ..., property: _Optional[_Iterable[_Union[_entity_pb2.Property, _Mapping]]] = ...) -> None: ...
    class Order(_message.Message):
        __slots__ = ("property", "direction")
        class Direction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            ASCENDING: _ClassVar[Query.Order.Direction]
            DESCENDING: _ClassVar[Query.Order.Direction]
        ASCENDING: Query.Order.Direction
        DESCENDING: Query.Order.Direction
        PROPERTY_FIELD_NUMBER: _ClassVar[int]
        DIRECTION_FIELD_NUMBER: _ClassVar[int]
        property: bytes
        direction: Query.Order.Direction
        def __init__(self, property: _Optional[bytes] = ..., direction: _Optional[_Union[Query.Order.Direction, str]] = ...) -> None: ...
    APP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    SEARCH_QUERY_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ANCESTOR_FIELD_NUMBER: _ClassVar[int]
    KEYS_ONLY_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DISTINCT_FIELD_NUMBER: _ClassVar[int]
    COMPILE_FIELD_NUMBER: _ClassVar[int]
    FAILOVER_MS_FIELD_NUMBER: _ClassVar[int]
    NAME_SPACE_FIELD_NUMBER: _ClassVar[int]
    COMPILED_CURSOR_FIELD_NUMBER: _ClassVar[int]
    END_COMPILED_CURSOR_FIELD_NUMBER: _ClassVar[int]
    STRONG_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_BY_PROPERTY_NAME_FIELD_NUMBER: _ClassVar[int]
    PERSIST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATABASE_ID_FIELD_NUMBER: _ClassVar[int]
    SHALLOW_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    kind: bytes
    filter: _containers.RepeatedCompositeFieldContainer[Query.Filter]
    search_query: bytes
    order: _containers.RepeatedCompositeFieldContainer[Query.Order]
    offset: int
    limit: int
    ancestor: _entity_pb2.Reference
    keys_only: bool
    transaction: Transaction
    count: int
    distinct: bool
    compile: bool
    failover_ms: int
    name_space: bytes
    compiled_cursor: CompiledCursor
    end_compiled_cursor: CompiledCursor
    strong: bool
    property_name: _containers.RepeatedScalarFieldContainer[bytes]
    group_by_property_name: _containers.RepeatedScalarFieldContainer[bytes]
    persist_offset: bool
    database_id: bytes
    shallow: bool
    def __init__(self, app: _Optional[bytes] = ..., kind: _Optional[bytes] = ..., filter: _Optional[_Iterable[_Union[Query.Filter, _Mapping]]] = ..., search_query: _Optional[bytes] = ..., order: _Optional[_Iterable[_Union[Query.Order, _Mapping]]] = ..., offset: _Optional[int] = ..., limit: _Optional[int] = ..., ancestor: _Optional[_Union[_entity_pb2.Reference, _Mapping]] = ..., keys_only: _Optional[bool] = ..., transaction: _Optional[_Union[Transaction, _Mapping]] = ..., count: _Optional[int] = ..., distinct: _Optional[bool] = ..., compile: _Optional[bool] = ..., failover_ms: _Optional[int] = ..., name_space: _Optional[bytes] = ..., compiled_cursor: _Optional[_Union[CompiledCursor, _Mapping]] = ..., end_compiled_cursor: _Optional[_Union[CompiledCursor, _Mapping]] = ..., strong: _Optional[bool] = ..., property_name: _Optional[_Iterable[bytes]] = ..., group_by_property_name: _Optional[_Iterable[bytes]] = ..., persist_offset: _Optional[bool] = ..., database_id: _Optional[bytes] = ..., shallow: _Optional[bool] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("cursor", "app", "database_id")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    DATABASE_ID_FIELD_NUMBER: _ClassVar[int]
    cursor: int
    app: bytes
    database_id: bytes
    def __init__(self, cursor: _Optional[int] = ..., app: _Optional[bytes] = ..., database_id: _Optional[bytes] = ...) -> None: ...

class NextRequest(_message.Message):
    __slots__ = ("cursor", "count", "compile", "offset")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    COMPILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    cursor: Cursor
    count: int
    compile: bool
    offset: int
    def __init__(self, cursor: _Optional[_Union[Cursor, _Mapping]] = ..., count: _Optional[int] = ..., compile: _Optional[bool] = ..., offset: _Optional[int] = ...) -> None: ...

class CompiledQuery(_message.Message):
    __slots__ = ("primaryscan", "keys_only")
    class PrimaryScan(_message.Message):
        __slots__ = ("index_name",)
        INDEX_NAME_FIELD_NUMBER: _ClassVar[int]
        index_name: bytes
        def __init__(self, index_name: _Optional[bytes] = ...) -> None: ...
    PRIMARYSCAN_FIELD_NUMBER: _ClassVar[int]
    KEYS_ONLY_FIELD_NUMBER: _ClassVar[int]
    primaryscan: CompiledQuery.PrimaryScan
    keys_only: bool
    def __init__(self, primaryscan: _Optional[_Union[CompiledQuery.PrimaryScan, _Mapping]] = ..., keys_only: _Optional[bool] = ...) -> None: ...

class QueryResult(_message.Message):
    __slots__ = ("cursor", "result", "more_results", "keys_only", "compiled_query", "compiled_cursor", "skipped_results", "index", "index_only", "version", "result_compiled_cursor", "skipped_results_compiled_cursor")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    MORE_RESULTS_FIELD_NUMBER: _ClassVar[int]
    KEYS_ONLY_FIELD_NUMBER: _ClassVar[int]
    COMPILED_QUERY_FIELD_NUMBER: _ClassVar[int]
    COMPILED_CURSOR_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_RESULTS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    INDEX_ONLY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RESULT_COMPILED_CURSOR_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_RESULTS_COMPILED_CURSOR_FIELD_NUMBER: _ClassVar[int]
    cursor: Cursor
    result: _containers.RepeatedScalarFieldContainer[bytes]
    more_results: bool
    keys_only: bool
    compiled_query: CompiledQuery
    compiled_cursor: CompiledCursor
    skipped_results: int
    index: _containers.RepeatedCompositeFieldContainer[_entity_pb2.CompositeIndex]
    index_only: bool
    version: _containers.RepeatedScalarFieldContainer[int]
    result_compiled_cursor: _containers.RepeatedCompositeFieldContainer[CompiledCursor]
    skipped_results_compiled_cursor: CompiledCursor
    def __init__(self, cursor: _Optional[_Union[Cursor, _Mapping]] = ..., result: _Optional[_Iterable[bytes]] = ..., more_results: _Optional[bool] = ..., keys_only: _Optional[bool] = ..., compiled_query: _Optional[_Union[CompiledQuery, _Mapping]] = ..., compiled_cursor: _Optional[_Union[CompiledCursor, _Mapping]] = ..., skipped_results: _Optional[int] = ..., index: _Optional[_Iterable[_Union[_entity_pb2.CompositeIndex, _Mapping]]] = ..., index_only: _Optional[bool] = ..., version: _Optional[_Iterable[int]] = ..., result_compiled_cursor: _Optional[_Iterable[_Union[CompiledCursor, _Mapping]]] = ..., skipped_results_compiled_cursor: _Optional[_Union[CompiledCursor, _Mapping]] = ...) -> None: ...

class BeginTransactionRequest(_message.Message):
    __slots__ = ("app", "allow_multiple_eg", "database_id", "mode", "previous_transaction")
    class TransactionMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[BeginTransactionRequest.TransactionMode]
        READ_ONLY: _ClassVar[BeginTransactionRequest.TransactionMode]
        READ_WRITE: _ClassVar[BeginTransactionRequest.TransactionMode]
    UNKNOWN: BeginTransactionRequest.TransactionMode
    READ_ONLY: BeginTransactionRequest.TransactionMode
    READ_WRITE: BeginTransactionRequest.TransactionMode
    APP_FIELD_NUMBER: _ClassVar[int]
    ALLOW_MULTIPLE_EG_FIELD_NUMBER: _ClassVar[int]
    DATABASE_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    allow_multiple_eg: bool
    database_id: bytes
    mode: BeginTransactionRequest.TransactionMode
    previous_transaction: Transaction
    def __init__(self, app: _Optional[bytes] = ..., allow_multiple_eg: _Optional[bool] = ..., database_id: _Optional[bytes] = ..., mode: _Optional[_Union[BeginTransactionRequest.TransactionMode, str]] = ..., previous_transaction: _Optional[_Union[Transaction, _Mapping]] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("cost", "version")
    class Version(_message.Message):
        __slots__ = ("root_entity_key", "version")
        ROOT_ENTITY_KEY_FIELD_NUMBER: _ClassVar[int]
        VERSION_FIELD_NUMBER: _ClassVar[int]
        root_entity_key: _entity_pb2.Reference
        version: int
        def __init__(self, root_entity_key: _Optional[_Union[_entity_pb2.Reference, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...
    COST_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    cost: Cost
    version: _containers.RepeatedCompositeFieldContainer[CommitResponse.Version]
    def __init__(self, cost: _Optional[_Union[Cost, _Mapping]] = ..., version: _Optional[_Iterable[_Union[CommitResponse.Version, _Mapping]]] = ...) -> None: ...

class AllocateIdsRequest(_message.Message):
    __slots__ = ("model_key", "size", "max", "reserve")
    MODEL_KEY_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    RESERVE_FIELD_NUMBER: _ClassVar[int]
    model_key: _entity_pb2.Reference
    size: int
    max: int
    reserve: _containers.RepeatedCompositeFieldContainer[_entity_pb2.Reference]
    def __init__(self, model_key: _Optional[_Union[_entity_pb2.Reference, _Mapping]] = ..., size: _Optional[int] = ..., max: _Optional[int] = ..., reserve: _Optional[_Iterable[_Union[_entity_pb2.Reference, _Mapping]]] = ...) -> None: ...

class AllocateIdsResponse(_message.Message):
    __slots__ = ("start", "end", "cost")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    cost: Cost
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., cost: _Optional[_Union[Cost, _Mapping]] = ...) -> None: ...

class GetIndicesRequest(_message.Message):
    __slots__ = ("app_id", "database_id")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    DATABASE_ID_FIELD_NUMBER: _ClassVar[int]
    app_id: bytes
    database_id: bytes
    def __init__(self, app_id: _Optional[bytes] = ..., database_id: _Optional[bytes] = ...) -> None: ...

class CompositeIndices(_message.Message):
    __slots__ = ("index",)
    INDEX_FIELD_NUMBER: _ClassVar[int]
    index: _containers.RepeatedCompositeFieldContainer[_entity_pb2.CompositeIndex]
    def __init__(self, index: _Optional[_Iterable[_Union[_entity_pb2.CompositeIndex, _Mapping]]] = ...) -> None: ...
