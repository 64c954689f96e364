from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Record(_message.Message):
    __slots__ = ("begins", "entity", "ends")
    class Begins(_message.Message):
        __slots__ = ("app", "database", "catalog")
        APP_FIELD_NUMBER: _ClassVar[int]
        DATABASE_FIELD_NUMBER: _ClassVar[int]
        CATALOG_FIELD_NUMBER: _ClassVar[int]
        app: bytes
        database: bytes
        catalog: bytes
        def __init__(self, app: _Optional[bytes] = ..., database: _Optional[bytes] = ..., catalog: _Optional[bytes] = ...) -> None: ...
    class Ends(_message.Message):
        __slots__ = ("catalog", "sequential", "scattered")
        CATALOG_FIELD_NUMBER: _ClassVar[int]
        SEQUENTIAL_FIELD_NUMBER: _ClassVar[int]
        SCATTERED_FIELD_NUMBER: _ClassVar[int]
        catalog: bytes
        sequential: int
        scattered: int
        def __init__(self, catalog: _Optional[bytes] = ..., sequential: _Optional[int] = ..., scattered: _Optional[int] = ...) -> None: ...
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    begins: Record.Begins
    entity: bytes
    ends: Record.Ends
    def __init__(self, begins: _Optional[_Union[Record.Begins, _Mapping]] = ..., entity: _Optional[bytes] = ..., ends: _Optional[_Union[Record.Ends, _Mapping]] = ...) -> None: ...

class Trailer(_message.Message):
    __slots__ = ("projects", "entities", "sha256")
    PROJECTS_FIELD_NUMBER: _ClassVar[int]
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    projects: int
    entities: int
    sha256: bytes
    def __init__(self, projects: _Optional[int] = ..., entities: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class Arrival(_message.Message):
    __slots__ = ("source", "project", "stage", "partition", "path", "entities", "sequential", "scattered")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    SEQUENTIAL_FIELD_NUMBER: _ClassVar[int]
    SCATTERED_FIELD_NUMBER: _ClassVar[int]
    source: bytes
    project: bytes
    stage: int
    partition: bytes
    path: bytes
    entities: int
    sequential: int
    scattered: int
    def __init__(self, source: _Optional[bytes] = ..., project: _Optional[bytes] = ..., stage: _Optional[int] = ..., partition: _Optional[bytes] = ..., path: _Optional[bytes] = ..., entities: _Optional[int] = ..., sequential: _Optional[int] = ..., scattered: _Optional[int] = ...) -> None: ...
