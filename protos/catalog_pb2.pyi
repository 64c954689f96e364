from protos import entity_pb2 as _entity_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Catalog(_message.Message):
    __slots__ = ("next_id", "entry")
    class Entry(_message.Message):
        __slots__ = ("index", "note")
        INDEX_FIELD_NUMBER: _ClassVar[int]
        NOTE_FIELD_NUMBER: _ClassVar[int]
        index: _entity_pb2.CompositeIndex
        note: bytes
        def __init__(self, index: _Optional[_Union[_entity_pb2.CompositeIndex, _Mapping]] = ..., note: _Optional[bytes] = ...) -> None: ...
    NEXT_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    next_id: int
    entry: _containers.RepeatedCompositeFieldContainer[Catalog.Entry]
    def __init__(self, next_id: _Optional[int] = ..., entry: _Optional[_Iterable[_Union[Catalog.Entry, _Mapping]]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("name_space", "path", "entities", "noticed_seconds", "clean_name_space", "clean_row", "is_clean", "leaving_seconds")
    NAME_SPACE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    NOTICED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CLEAN_NAME_SPACE_FIELD_NUMBER: _ClassVar[int]
    CLEAN_ROW_FIELD_NUMBER: _ClassVar[int]
    IS_CLEAN_FIELD_NUMBER: _ClassVar[int]
    LEAVING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name_space: bytes
    path: bytes
    entities: int
    noticed_seconds: int
    clean_name_space: bytes
    clean_row: bytes
    is_clean: bool
    leaving_seconds: int
    def __init__(self, name_space: _Optional[bytes] = ..., path: _Optional[bytes] = ..., entities: _Optional[int] = ..., noticed_seconds: _Optional[int] = ..., clean_name_space: _Optional[bytes] = ..., clean_row: _Optional[bytes] = ..., is_clean: _Optional[bool] = ..., leaving_seconds: _Optional[int] = ...) -> None: ...
