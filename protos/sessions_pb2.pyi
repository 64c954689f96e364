from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Continuation(_message.Message):
    __slots__ = ("app", "query", "after", "answers", "offset", "remaining")
    class After(_message.Message):
        __slots__ = ("value", "path")
        VALUE_FIELD_NUMBER: _ClassVar[int]
        PATH_FIELD_NUMBER: _ClassVar[int]
        value: _containers.RepeatedScalarFieldContainer[bytes]
        path: bytes
        def __init__(self, value: _Optional[_Iterable[bytes]] = ..., path: _Optional[bytes] = ...) -> None: ...
    APP_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    query: bytes
    after: Continuation.After
    answers: int
    offset: int
    remaining: int
    def __init__(self, app: _Optional[bytes] = ..., query: _Optional[bytes] = ..., after: _Optional[_Union[Continuation.After, _Mapping]] = ..., answers: _Optional[int] = ..., offset: _Optional[int] = ..., remaining: _Optional[int] = ...) -> None: ...

class TransactionHeader(_message.Message):
    __slots__ = ("app", "cross_group", "read_only")
    APP_FIELD_NUMBER: _ClassVar[int]
    CROSS_GROUP_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    cross_group: bool
    read_only: bool
    def __init__(self, app: _Optional[bytes] = ..., cross_group: _Optional[bool] = ..., read_only: _Optional[bool] = ...) -> None: ...
