from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PropertyValue(_message.Message):
    __slots__ = ("int64_value", "boolean_value", "string_value", "double_value", "pointvalue", "uservalue", "referencevalue")
    class PointValue(_message.Message):
        __slots__ = ("x", "y")
        X_FIELD_NUMBER: _ClassVar[int]
        Y_FIELD_NUMBER: _ClassVar[int]
        x: float
        y: float
        def __init__(self, x: _Optional[float] = ..., y: _Optional[float] = ...) -> None: ...
    class UserValue(_message.Message):
        __slots__ = ("email", "auth_domain", "nickname", "gaiaid", "obfuscated_gaiaid", "federated_identity", "federated_provider")
        EMAIL_FIELD_NUMBER: _ClassVar[int]
        AUTH_DOMAIN_FIELD_NUMBER: _ClassVar[int]
        NICKNAME_FIELD_NUMBER: _ClassVar[int]
        GAIAID_FIELD_NUMBER: _ClassVar[int]
        OBFUSCATED_GAIAID_FIELD_NUMBER: _ClassVar[int]
        FEDERATED_IDENTITY_FIELD_NUMBER: _ClassVar[int]
        FEDERATED_PROVIDER_FIELD_NUMBER: _ClassVar[int]
        email: bytes
        auth_domain: bytes
        nickname: bytes
        gaiaid: int
        obfuscated_gaiaid: bytes
        federated_identity: bytes
        federated_provider: bytes
        def __init__(self, email: _Optional[bytes] = ..., auth_domain: _Optional[bytes] = ..., nickname: _Optional[bytes] = ..., gaiaid: _Optional[int] = ..., obfuscated_gaiaid: _Optional[bytes] = ..., federated_identity: _Optional[bytes] = ..., federated_provider: _Optional[bytes] = ...) -> None: ...
    class ReferenceValue(_message.Message):
        __slots__ = ("app", "pathelement", "name_space", "database_id")
        class PathElement(_message.Message):
            __slots__ = ("type", "id", "name")
            TYPE_FIELD_NUMBER: _ClassVar[int]
            ID_FIELD_NUMBER: _ClassVar[int]
            NAME_FIELD_NUMBER: _ClassVar[int]
            type: bytes
            id: int
            name: bytes
            def __init__(self, type: _Optional[bytes] = ..., id: _Optional[int] = ..., name: _Optional[bytes] = ...) -> None: ...
        APP_FIELD_NUMBER: _ClassVar[int]
        PATHELEMENT_FIELD_NUMBER: _ClassVar[int]
        NAME_SPACE_FIELD_NUMBER: _ClassVar[int]
        DATABASE_ID_FIELD_NUMBER: _ClassVar[int]
        app: bytes
        pathelement: _containers.RepeatedCompositeFieldContainer[PropertyValue.ReferenceValue.PathElement]
        name_space: bytes
        database_id: bytes
        def __init__(self, app: _Optional[bytes] = ..., pathelement: _Optional[_Iterable[_Union[PropertyValue.ReferenceValue.PathElement, _Mapping]]] = ..., name_space: _Optional[bytes] = ..., database_id: _Optional[bytes] = ...) -> None: ...
    INT64_VALUE_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_VALUE_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    POINTVALUE_FIELD_NUMBER: _ClassVar[int]
    USERVALUE_FIELD_NUMBER: _ClassVar[int]
    REFERENCEVALUE_FIELD_NUMBER: _ClassVar[int]
    int64_value: int
    boolean_value: bool
    string_value: bytes
    double_value: float
    pointvalue: PropertyValue.PointValue
    uservalue: PropertyValue.UserValue
    referencevalue: PropertyValue.ReferenceValue
    def __init__(self, int64_value: _Optional[int] = ..., boolean_value: _Optional[bool] = ..., string_value: _Optional[bytes] = ..., double_value: _Optional[float] = ..., pointvalue: _Optional[_Union[PropertyValue.PointValue, _Mapping]] = ..., uservalue: _Optional[_Union[PropertyValue.UserValue, _Mapping]] = ..., referencevalue: _Optional[_Union[PropertyValue.ReferenceValue, _Mapping]] = ...) -> None: ...

class Property(_message.Message):
    __slots__ = ("meaning", "meaning_uri", "name", "multiple", "value", "stashed", "computed")
    class Meaning(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NO_MEANING: _ClassVar[Property.Meaning]
        ATOM_CATEGORY: _ClassVar[Property.Meaning]
        ATOM_LINK: _ClassVar[Property.Meaning]
        ATOM_TITLE: _ClassVar[Property.Meaning]
        ATOM_CONTENT: _ClassVar[Property.Meaning]
        ATOM_SUMMARY: _ClassVar[Property.Meaning]
        ATOM_AUTHOR: _ClassVar[Property.Meaning]
        GD_WHEN: _ClassVar[Property.Meaning]
        GD_EMAIL: _ClassVar[Property.Meaning]
        GEORSS_POINT: _ClassVar[Property.Meaning]
        GD_IM: _ClassVar[Property.Meaning]
        GD_PHONENUMBER: _ClassVar[Property.Meaning]
        GD_POSTALADDRESS: _ClassVar[Property.Meaning]
        GD_RATING: _ClassVar[Property.Meaning]
        BLOB: _ClassVar[Property.Meaning]
        TEXT: _ClassVar[Property.Meaning]
        BYTESTRING: _ClassVar[Property.Meaning]
        BLOBKEY: _ClassVar[Property.Meaning]
        INDEX_VALUE: _ClassVar[Property.Meaning]
        ENTITY_PROTO: _ClassVar[Property.Meaning]
        EMPTY_LIST: _ClassVar[Property.Meaning]
    NO_MEANING: Property.Meaning
    ATOM_CATEGORY: Property.Meaning
    ATOM_LINK: Property.Meaning
    ATOM_TITLE: Property.Meaning
    ATOM_CONTENT: Property.Meaning
    ATOM_SUMMARY: Property.Meaning
    ATOM_AUTHOR: Property.Meaning
    GD_WHEN: Property.Meaning
    GD_EMAIL: Property.Meaning
    GEORSS_POINT: Property.Meaning
    GD_IM: Property.Meaning
    GD_PHONENUMBER: Property.Meaning
    GD_POSTALADDRESS: Property.Meaning
    GD_RATING: Property.Meaning
    BLOB: Property.Meaning
    TEXT: Property.Meaning
    BYTESTRING: Property.Meaning
    BLOBKEY: Property.Meaning
    INDEX_VALUE: Property.Meaning
    ENTITY_PROTO: Property.Meaning
    EMPTY_LIST: Property.Meaning
    MEANING_FIELD_NUMBER: _ClassVar[int]
    MEANING_URI_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    STASHED_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    meaning: Property.Meaning
    meaning_uri: bytes
    name: bytes
    multiple: bool
    value: PropertyValue
    stashed: int
    computed: bool
    def __init__(self, meaning: _Optional[_Union[Property.Meaning, str]] = ..., meaning_uri: _Optional[bytes] = ..., name: _Optional[bytes] = ..., multiple: _Optional[bool] = ..., value: _Optional[_Union[PropertyValue, _Mapping]] = ..., stashed: _Optional[int] = ..., computed: _Optional[bool] = ...) -> None: ...

class Path(_message.Message):
    __slots__ = ("element",)
    class Element(_message.Message):
        __slots__ = ("type", "id", "name")
        TYPE_FIELD_NUMBER: _ClassVar[int]
        ID_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        type: bytes
        id: int
        name: bytes
        def __init__(self, type: _Optional[bytes] = ..., id: _Optional[int] = ..., name: _Optional[bytes] = ...) -> None: ...
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    element: _containers.RepeatedCompositeFieldContainer[Path.Element]
    def __init__(self, element: _Optional[_Iterable[_Union[Path.Element, _Mapping]]] = ...) -> None: ...

class Reference(_message.Message):
    __slots__ = ("app", "path", "name_space", "database_id")
    APP_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    NAME_SPACE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_ID_FIELD_NUMBER: _ClassVar[int]
    app: bytes
    path: Path
    name_space: bytes
    database_id: bytes
    def __init__(self, app: _Optional[bytes] = ..., path: _Optional[_Union[Path, _Mapping]] = ..., name_space: _Optional[bytes] = ..., database_id: _Optional[bytes] = ...) -> None: ...

class EntityProto(_message.Message):
    __slots__ = ("key", "kind", "kind_uri", "property", "raw_property", "entity_group", "owner")
    KEY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    KIND_URI_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_FIELD_NUMBER: _ClassVar[int]
    RAW_PROPERTY_FIELD_NUMBER: _ClassVar[int]
    ENTITY_GROUP_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    key: Reference
    kind: int
    kind_uri: bytes
    property: _containers.RepeatedCompositeFieldContainer[Property]
    raw_property: _containers.RepeatedCompositeFieldContainer[Property]
    entity_group: Path
    owner: bytes
    def __init__(self, key: _Optional[_Union[Reference, _Mapping]] = ..., kind: _Optional[int] = ..., kind_uri: _Optional[bytes] = ..., property: _Optional[_Iterable[_Union[Property, _Mapping]]] = ..., raw_property: _Optional[_Iterable[_Union[Property, _Mapping]]] = ..., entity_group: _Optional[_Union[Path, _Mapping]] = ..., owner: _Optional[bytes] = ...) -> None: ...

class Index(_message.Message):
    __slots__ = ("entity_type", "property", "ancestor")
    class Direction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DIRECTION_UNSPECIFIED: _ClassVar[Index.Direction]
        ASCENDING: _ClassVar[Index.Direction]
        DESCENDING: _ClassVar[Index.Direction]
    DIRECTION_UNSPECIFIED: Index.Direction
    ASCENDING: Index.Direction
    DESCENDING: Index.Direction
    class Property(_message.Message):
        __slots__ = ("name", "direction", "mode")
        NAME_FIELD_NUMBER: _ClassVar[int]
        DIRECTION_FIELD_NUMBER: _ClassVar[int]
        MODE_FIELD_NUMBER: _ClassVar[int]
        name: bytes
        direction: Index.Direction
        mode: int
        def __init__(self, name: _Optional[bytes] = ..., direction: _Optional[_Union[Index.Direction, str]] = ..., mode: _Optional[int] = ...) -> None: ...
    ENTITY_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_FIELD_NUMBER: _ClassVar[int]
    ANCESTOR_FIELD_NUMBER: _ClassVar[int]
    entity_type: bytes
    property: _containers.RepeatedCompositeFieldContainer[Index.Property]
    ancestor: bool
    def __init__(self, entity_type: _Optional[bytes] = ..., property: _Optional[_Iterable[_Union[Index.Property, _Mapping]]] = ..., ancestor: _Optional[bool] = ...) -> None: ...

class CompositeIndex(_message.Message):
    __slots__ = ("app_id", "id", "definition", "state", "only_use_if_required", "database_id")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WRITE_ONLY: _ClassVar[CompositeIndex.State]
        READ_WRITE: _ClassVar[CompositeIndex.State]
        DELETED: _ClassVar[CompositeIndex.State]
        ERROR: _ClassVar[CompositeIndex.State]
    WRITE_ONLY: CompositeIndex.State
    READ_WRITE: CompositeIndex.State
    DELETED: CompositeIndex.State
    ERROR: CompositeIndex.State
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ONLY_USE_IF_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    DATABASE_ID_FIELD_NUMBER: _ClassVar[int]
    app_id: bytes
    id: int
    definition: Index
    state: CompositeIndex.State
    only_use_if_required: bool
    database_id: bytes
    def __init__(self, app_id: _Optional[bytes] = ..., id: _Optional[int] = ..., definition: _Optional[_Union[Index, _Mapping]] = ..., state: _Optional[_Union[CompositeIndex.State, str]] = ..., only_use_if_required: _Optional[bool] = ..., database_id: _Optional[bytes] = ...) -> None: ...

class IndexPostfix(_message.Message):
    __slots__ = ("index_value", "key", "before", "before_ascending")
    class IndexValue(_message.Message):
        __slots__ = ("property_name", "value")
        PROPERTY_NAME_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        property_name: bytes
        value: PropertyValue
        def __init__(self, property_name: _Optional[bytes] = ..., value: _Optional[_Union[PropertyValue, _Mapping]] = ...) -> None: ...
    INDEX_VALUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_ASCENDING_FIELD_NUMBER: _ClassVar[int]
    index_value: _containers.RepeatedCompositeFieldContainer[IndexPostfix.IndexValue]
    key: Reference
    before: bool
    before_ascending: bool
    def __init__(self, index_value: _Optional[_Iterable[_Union[IndexPostfix.IndexValue, _Mapping]]] = ..., key: _Optional[_Union[Reference, _Mapping]] = ..., before: _Optional[bool] = ..., before_ascending: _Optional[bool] = ...) -> None: ...

class IndexPosition(_message.Message):
    __slots__ = ("key", "before", "before_ascending")
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_ASCENDING_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    before: bool
    before_ascending: bool
    def __init__(self, key: _Optional[bytes] = ..., before: _Optional[bool] = ..., before_ascending: _Optional[bool] = ...) -> None: ...
