from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Head(_message.Message):
    __slots__ = ("state", "uid", "row", "part", "primary", "recent", "dropped")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        COMMITTED: _ClassVar[Head.State]
        APPLIED: _ClassVar[Head.State]
        PREPARED: _ClassVar[Head.State]
    COMMITTED: Head.State
    APPLIED: Head.State
    PREPARED: Head.State
    class Row(_message.Message):
        __slots__ = ("table", "scope", "place", "key", "value")
        TABLE_FIELD_NUMBER: _ClassVar[int]
        SCOPE_FIELD_NUMBER: _ClassVar[int]
        PLACE_FIELD_NUMBER: _ClassVar[int]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        table: bytes
        scope: bytes
        place: bytes
        key: bytes
        value: bytes
        def __init__(self, table: _Optional[bytes] = ..., scope: _Optional[bytes] = ..., place: _Optional[bytes] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...
    class Part(_message.Message):
        __slots__ = ("group", "slot")
        GROUP_FIELD_NUMBER: _ClassVar[int]
        SLOT_FIELD_NUMBER: _ClassVar[int]
        group: bytes
        slot: int
        def __init__(self, group: _Optional[bytes] = ..., slot: _Optional[int] = ...) -> None: ...
    class Primary(_message.Message):
        __slots__ = ("group", "slot", "base")
        GROUP_FIELD_NUMBER: _ClassVar[int]
        SLOT_FIELD_NUMBER: _ClassVar[int]
        BASE_FIELD_NUMBER: _ClassVar[int]
        group: bytes
        slot: int
        base: int
        def __init__(self, group: _Optional[bytes] = ..., slot: _Optional[int] = ..., base: _Optional[int] = ...) -> None: ...
    class Commit(_message.Message):
        __slots__ = ("slot", "uid")
        SLOT_FIELD_NUMBER: _ClassVar[int]
        UID_FIELD_NUMBER: _ClassVar[int]
        slot: int
        uid: bytes
        def __init__(self, slot: _Optional[int] = ..., uid: _Optional[bytes] = ...) -> None: ...
    STATE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    state: Head.State
    uid: bytes
    row: _containers.RepeatedCompositeFieldContainer[Head.Row]
    part: _containers.RepeatedCompositeFieldContainer[Head.Part]
    primary: Head.Primary
    recent: _containers.RepeatedCompositeFieldContainer[Head.Commit]
    dropped: int
    def __init__(self, state: _Optional[_Union[Head.State, str]] = ..., uid: _Optional[bytes] = ..., row: _Optional[_Iterable[_Union[Head.Row, _Mapping]]] = ..., part: _Optional[_Iterable[_Union[Head.Part, _Mapping]]] = ..., primary: _Optional[_Union[Head.Primary, _Mapping]] = ..., recent: _Optional[_Iterable[_Union[Head.Commit, _Mapping]]] = ..., dropped: _Optional[int] = ...) -> None: ...
