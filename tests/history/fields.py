"""The fields of a line, each checked for its type."""

from tests.history.format import TopicPartition, Value


class FieldError(ValueError):
    """A field is not what the format asks for."""


def length_of(op: list[object], least: int, most: int) -> int:
    if not least <= len(op) <= most:
        raise FieldError(f"micro-operation {op!r} has {len(op)} elements, not {least} to {most}")
    return len(op)


def where_of(op: list[object]) -> TopicPartition:
    return text_of(op[1], "topic"), number_of(op[2], "partition")


def value_of(value: object) -> Value:
    if type(value) is str or type(value) is int:
        return value
    raise FieldError(f"value {value!r} is neither a string nor an integer")


def text_of(value: object, name: str) -> str:
    if isinstance(value, str) and value:
        return value
    raise FieldError(f"{name} {value!r} is not a string")


def optional_text_of(value: object, name: str) -> str | None:
    return None if value is None else text_of(value, name)


def choice_of(value: object, name: str, *choices: str) -> str:
    if isinstance(value, str) and value in choices:
        return value
    raise FieldError(f"{name} {value!r} is none of {', '.join(choices)}")


def is_set(value: object, name: str) -> bool:
    if value is None or type(value) is bool:
        return bool(value)
    raise FieldError(f"{name} {value!r} is neither true nor false")


def settings_of(op: list[object], known: set[str]) -> dict[str, object]:
    """The settings that a micro-operation names, all of them among the known ones."""
    length_of(op, 2, 2)
    settings = op[1]
    if type(settings) is not dict or not settings.keys() <= known:
        raise FieldError(f"settings {settings!r} are not an object of {', '.join(sorted(known))}")
    return settings


def number_of(value: object, name: str) -> int:
    if type(value) is int and value >= 0:
        return value
    raise FieldError(f"{name} {value!r} is not a whole number from 0")


def optional_number_of(value: object, name: str) -> int | None:
    return None if value is None else number_of(value, name)


def list_of(value: object, name: str) -> list[object]:
    if isinstance(value, list):
        return value
    raise FieldError(f"{name} {value!r} is not a list")


def records_of(rows: object) -> tuple[tuple[int, Value], ...]:
    """Pairs of offset and value."""
    records: list[tuple[int, Value]] = []
    for record in list_of(rows, "records"):
        if type(record) is not list or len(record) != 2:
            raise FieldError(f"a record is [offset, value], not {record!r}")
        offset, value = record
        if type(offset) is not int or offset < 0:
            raise FieldError(f"offset {offset!r} is not a whole number from 0")
        records.append((offset, value if type(value) is str else value_of(value)))
    return tuple(records)
