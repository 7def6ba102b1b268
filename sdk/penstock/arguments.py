"""The checks of arguments. Each error names the argument, its value, and what to give instead."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock.errors import InvalidError, as_sdk_error
from penstock.model import HeadersToSend, TopicPartition
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_topic_name


def check(holds: bool, message: str) -> None:
    """Raises InvalidError unless it holds."""
    if not holds:
        raise InvalidError(ErrorCode.INVALID_REQUEST, message)


def check_number(name: str, value: object, least: int) -> None:
    """Raises InvalidError unless the value is a number of at least `least`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    check(is_number and value >= least, f"{name}={value!r:.100}: use a number from {least}")  # type: ignore[operator]  # it is one


def is_whole(value: object) -> bool:
    """The value is a whole number: an int, or a type that stands for one, as numpy's do."""
    return hasattr(type(value), "__index__") and not isinstance(value, bool)


def check_whole(name: str, value: object, least: int) -> None:
    """Raises InvalidError unless the value is a whole number of at least `least`."""
    check(is_whole(value) and value >= least, f"{name}={value!r:.100}: use a whole number from {least}")  # type: ignore[operator]  # it is one


def check_text(name: str, value: object) -> None:
    """Raises InvalidError unless the value is a string."""
    check(isinstance(value, str), f"{name}={value!r:.100}: give a string")


def check_mapping(name: str, value: object, example: str) -> None:
    """Raises InvalidError unless the value is a mapping; `example` shows one."""
    check(isinstance(value, Mapping), f"{name}={value!r:.100}: give a dict, such as {example}")


def check_numbers(name: str, value: object) -> None:
    """Raises InvalidError unless the value maps partition numbers to offsets."""
    check_mapping(name, value, "{0: 42}")
    assert isinstance(value, Mapping)
    for partition, offset in value.items():
        check_whole(f"{name}: partition", partition, 0)
        check_whole(f"{name}: of partition {partition}", offset, 0)


def checked_partition(name: str, value: object) -> TopicPartition:
    """The partition, also if it is given as a plain tuple. Raises InvalidError for another value."""
    if isinstance(value, tuple) and len(value) == 2:
        topic, number = value
        if isinstance(topic, str) and is_whole(number) and number >= 0:
            return TopicPartition(topic, number)
    raise InvalidError(
        ErrorCode.INVALID_REQUEST, f"{name}={value!r:.100}: give a TopicPartition, such as TopicPartition('orders', 0)"
    )


def checked_partitions(values: object) -> list[TopicPartition]:
    """The partitions, each once. Raises InvalidError for another value."""
    check(
        isinstance(values, Iterable) and not isinstance(values, str | bytes) and not hasattr(values, "_fields"),
        f"partitions={values!r:.100}: give a list of TopicPartition, such as [TopicPartition('orders', 0)]",
    )
    assert isinstance(values, Iterable)
    return list(dict.fromkeys(checked_partition("partition", each) for each in values))


def checked_offsets(name: str, values: object) -> dict[TopicPartition, int]:
    """Offsets by partition. Raises InvalidError for another value."""
    check_mapping(name, values, "{TopicPartition('orders', 0): 42}")
    assert isinstance(values, Mapping)
    checked: dict[TopicPartition, int] = {}
    for each, offset in values.items():
        partition = checked_partition(f"{name}: partition", each)
        check_whole(f"{name}: {partition.topic}[{partition.partition}]", offset, 0)
        checked[partition] = offset
    return checked


def check_timeout(value: object) -> None:
    """Raises InvalidError unless the value is None or a number of seconds."""
    if value is not None:
        check_number("timeout", value, 0)


def check_callable(name: str, value: object) -> None:
    """Raises InvalidError unless the value is None or can be called."""
    check(value is None or callable(value), f"{name}={value!r:.100}: give a function, or None")


def checked_name(parse: Callable[[str], str], name: str) -> str:
    """The name, if the service would take it. Raises InvalidError."""
    try:
        return parse(name)
    except PenstockError as error:
        raise as_sdk_error(error) from None
    except TypeError:
        raise InvalidError(ErrorCode.INVALID_NAME, f"{name!r:.100} is not a name: give a string") from None


def checked_topic(name: str) -> str:
    """The name, if a topic may have it. Raises InvalidError."""
    return checked_name(parse_topic_name, name)


def checked_headers(headers: HeadersToSend) -> Sequence[tuple[str, bytes | None]]:
    """The headers as pairs with bytes. Raises InvalidError for other types."""
    pairs: list[tuple[str, bytes | None]] = []
    try:
        for name, value in headers.items() if isinstance(headers, Mapping) else headers:
            if not isinstance(name, str):
                raise TypeError(f"the name {name!r:.100}")
            pairs.append((name, None if value is None else _bytes_of(value)))
    except (TypeError, ValueError) as error:
        raise InvalidError(
            ErrorCode.INVALID_REQUEST,
            f"headers={headers!r:.100}: give a dict or pairs, of names (str) and values (bytes, str or None) ({error})",
        ) from error
    return tuple(pairs)


def _bytes_of(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"the value {value!r:.100}")
    return bytes(value)
