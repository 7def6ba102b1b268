"""The options `value_serializer`, `value_deserializer` and those of the key, as clients carry them out.

A serializer is a function of one value, or an object with the methods of `Serializer`. An event loop must not wait: so
an object of penstock.schemas first answers from memory, by the method whose name ends with `_now`. It raises
LookUpFirst where it has to ask a registry. The client then makes that call, in another thread if it belongs to a loop,
and tries again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from penstock.arguments import check
from penstock.encryption.values import Encryption
from penstock.errors import CorruptError, InvalidError, LookUpFirst
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.codec import Headers

Field = Literal["key", "value"]


class Serializer(Protocol):
    """Makes bytes of the values, or of the keys, of records. `field` tells which."""

    def serialize(self, topic: str, field: Field, given: Any) -> bytes | str:
        """The bytes, never None. Raises for a value that it does not take; the record is not sent then."""


class Deserializer(Protocol):
    """The inverse of Serializer."""

    def deserialize(self, topic: str, field: Field, data: bytes) -> Any:
        """The value. Raises for bytes that it cannot read; the client treats the record as undecodable then.

        The client passes on an error of this SDK that is no CorruptError, such as UnavailableError, and keeps the
        record.
        """


# Plain functions have no use for topic and field.
SerializerOption = Serializer | Callable[[Any], bytes | str]
DeserializerOption = Deserializer | Callable[[bytes], Any]


class Serializers:
    """A producer's serializers. None of the two: the caller gives bytes or text."""

    def __init__(self, value: SerializerOption | None, key: SerializerOption | None) -> None:
        self._value = _method("value_serializer", value, "serialize")
        self._key = _method("key_serializer", key, "serialize")
        self._given = {"value": value, "key": key}  # for messages

    def __bool__(self) -> bool:
        return self._value is not None or self._key is not None

    def serialize(self, topic: str, value: Any, key: Any) -> tuple[Any, Any]:
        """Value and key as they are sent. None stays None: a tombstone, and no key.

        Raises InvalidError for what a serializer refuses, LookUpFirst, and the errors of a registry.
        """
        return self._made(self._value, topic, "value", value), self._made(self._key, topic, "key", key)

    def _made(
        self, serialize: Callable[[str, Field, Any], Any] | None, topic: str, field: Field, given: Any
    ) -> bytes | str | None:
        made: bytes | str | None = _serialized(serialize, topic, field, given)
        if made is None and given is not None:
            meant = "a tombstone, send None" if field == "value" else "a record without a key, give none"
            raise InvalidError(
                ErrorCode.INVALID_RECORD,
                f"{field}_serializer={self._given[field]!r:.200} returned None for {given!r:.200}, a {field} for topic "
                f"{topic!r:.100}: return bytes or text; if you mean {meant}",
            )
        return made


class Deserializers:
    """A consumer's deserializers."""

    def __init__(self, value: DeserializerOption | None, key: DeserializerOption | None) -> None:
        self._value = _method("value_deserializer", value, "deserialize")
        self._key = _method("key_deserializer", key, "deserialize")
        self._value_framed, self._key_framed = (getattr(each, "framed", None) for each in (value, key))

    def __bool__(self) -> bool:
        return self._value is not None or self._key is not None

    def deserialize(self, topic: str, value: bytes | None, key: bytes | None, headers: Headers = ()) -> tuple[Any, Any]:
        """Value and key as the application gets them. Raises CorruptError, LookUpFirst, and a registry's errors."""
        if headers:  # those of Confluent's clients may name the schemas
            if value is not None and self._value_framed is not None:
                value = self._value_framed("value", value, headers)
            if key is not None and self._key_framed is not None:
                key = self._key_framed("key", key, headers)
        return _deserialized(self._value, topic, "value", value), _deserialized(self._key, topic, "key", key)

    def deserialize_waiting(
        self, topic: str, value: bytes | None, key: bytes | None, headers: Headers = ()
    ) -> tuple[Any, Any]:
        """As `deserialize`, but it asks the registry itself."""
        while True:
            try:
                return self.deserialize(topic, value, key, headers)
            except LookUpFirst as missing:
                missing.look_up()


@dataclass(frozen=True, slots=True)
class Reading:
    """The work of a consumer on each record before the application gets it: it decrypts, then it deserializes."""

    encryption: Encryption | None
    deserializers: Deserializers

    def __bool__(self) -> bool:
        return self.encryption is not None or bool(self.deserializers)


def _method(option: str, given: Any, name: str) -> Callable[[str, Field, Any], Any] | None:
    """The option as a function of topic, field and value. Raises InvalidError for another object."""
    if given is None:
        return None
    method = getattr(given, f"{name}_now", None) or getattr(given, name, None)
    if method is not None and not isinstance(given, type):
        found: Callable[[str, Field, Any], Any] = method
        return found
    is_function = callable(given) and not (isinstance(given, type) and hasattr(given, name))
    check(
        is_function,
        f"{option} is of type {type(given).__name__}: give a function of one value, or an object with a method "
        f"{name}(topic, field, …), such as JsonSerde() of penstock.schemas",
    )
    return lambda _topic, _field, value: given(value)


def _serialized(serialize: Callable[[str, Field, Any], Any] | None, topic: str, field: Field, given: Any) -> Any:
    if serialize is None or given is None:
        return given
    try:
        return serialize(topic, field, given)
    except PenstockError:
        raise
    except Exception as error:  # an edge: the serializer may be the application's
        raise InvalidError(
            ErrorCode.INVALID_RECORD,
            f"the {field} of a record for topic {topic!r:.100} cannot be serialized: {type(error).__name__}: "
            f"{error!s:.500}; {field}: {given!r:.200}",
        ) from error


def _deserialized(
    deserialize: Callable[[str, Field, Any], Any] | None, topic: str, field: Field, data: bytes | None
) -> Any:
    if deserialize is None or data is None:
        return data
    try:
        return deserialize(topic, field, data)
    except PenstockError:
        raise
    except Exception as error:  # an edge: the deserializer may be the application's, and the bytes a stranger's
        raise CorruptError(
            ErrorCode.CORRUPT_BATCH,
            f"the {field} of {len(data)} bytes, {bytes(data[:32])!r}…, cannot be deserialized: "
            f"{type(error).__name__}: {error!s:.500}",
        ) from error
