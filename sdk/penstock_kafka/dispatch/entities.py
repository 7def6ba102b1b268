"""Builds kio's entities of any version from answers that do not know the version."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

from kio.schema.errors import ErrorCode

from penstock_kafka.dispatch.api import Uuid

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EMPTY: Mapping[str, object] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(),
    "timedelta_i64": timedelta(),
    "datetime_i64": None,
}


class _Field(NamedTuple):
    name: str
    convert: Callable[[Any], object] | None  # of a value that the answer has
    entity: type[Any] | None  # inside
    is_list: bool
    has_default: bool
    empty: object  # in place of a value that the answer has not


def entity_of(kind: type[Any], answer: Mapping[str, object]) -> Any:
    """The entity of this kind with the answer's values. Values that the kind does not know are left out."""
    values: dict[str, object] = {}
    for name, convert, entity, is_list, has_default, empty in _fields(kind):  # type: ignore[arg-type]  # a type is hashable
        if name not in answer:
            if not has_default:
                values[name] = empty
            continue
        value = answer[name]
        if value is None:
            values[name] = None
        elif entity is not None:
            values[name] = _nested(entity, value, is_list=is_list)
        elif is_list and isinstance(value, Sequence):
            values[name] = tuple(value)
        else:
            values[name] = convert(value) if convert is not None else value
    return kind(**values)


def _nested(entity: type[Any], value: Any, *, is_list: bool) -> object:
    return tuple(entity_of(entity, each) for each in value) if is_list else entity_of(entity, value)


@lru_cache(maxsize=2_048)  # kinds of kio, of which there are fewer for the versions that the gateway serves
def _fields(kind: type[Any]) -> tuple[_Field, ...]:
    return tuple(_field(each) for each in dataclasses.fields(kind))


def _field(field: "dataclasses.Field[Any]") -> _Field:
    wire = field.metadata.get("kafka_type", "")
    kind, is_nullable = _without_none(field.type)
    is_list = get_origin(kind) is tuple
    inner = get_args(kind)[0] if is_list else kind
    entity = inner if dataclasses.is_dataclass(inner) and isinstance(inner, type) else None
    empty = None if is_nullable else () if is_list else _EMPTY.get(wire, 0)
    if entity is not None and not is_list and not is_nullable:
        empty = entity_of(entity, {})
    has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    return _Field(field.name, _converter(wire), entity, is_list, has_default, empty)


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) is not UnionType:
        return kind, False
    kinds = get_args(kind)
    return next(each for each in kinds if each is not NoneType), NoneType in kinds


def _converter(wire: str) -> Callable[[Any], object] | None:
    if wire in ("timedelta_i32", "timedelta_i64"):
        return lambda value: value if isinstance(value, timedelta) else timedelta(milliseconds=value)
    if wire == "datetime_i64":
        return lambda value: _EPOCH + timedelta(milliseconds=value) if value >= 0 else None
    if wire == "error_code":
        return ErrorCode
    if wire == "uuid":
        return lambda value: value if isinstance(value, Uuid) else Uuid(hex=value)
    return None
