from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Continuation(_message.Message):
    __slots__ = ("app", "query", "after", "offset", "remaining")
    APP_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    query: bytes
    after: bytes
    offset: int
    remaining: int
    def __init__(self, app: _Optional[bytes] = ..., query: _Optional[bytes] = ..., after: _Optional[bytes] = ..., offset: _Optional[int] = ..., remaining: _Optional[int] = ...) -> None: ...

class TransactionHeader(_message.Message):
    __slots__ = ("app", "cross_group", "read_only")
    APP_FIELD_NUMBER: _ClassVar[int]
    CROSS_GROUP_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    cross_group: bool
    read_only: bool
    def __init__(self, app: _Optional[bytes] = ..., cross_group: _Optional[bool] = ..., read_only: _Optional[bool] = ...) -> None: ...
