"""Counts the entries of a request before it is read: a name may have two bytes, and costs far more than that.

It walks the bytes as the request's schema says, and stops at the bound. So a large frame of tiny entries costs neither
the time to read it nor that to refuse each entry. A request below the bound in bytes cannot have too many.

Requests that name many things: each gets its own answer, and a few calls of the service are under way at once.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin

from penstock_core.limits import KAFKA_REQUEST_ENTRIES_MAX

_FIXED = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "uuid": 16,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}
A = TypeVar("A")
T = TypeVar("T")
_AT_ONCE = 16


class TooManyEntriesError(Exception):
    """The request has more entries than the gateway reads."""


class _Bytes:
    """The place in a frame, and the entries that it may still have."""

    def __init__(self, frame: bytes, at: int) -> None:
        self.frame = frame
        self.at = at
        self.left = KAFKA_REQUEST_ENTRIES_MAX

    def entries(self, count: int) -> int:
        """Count an array's entries, none if it is null."""
        self.left -= max(count, 0)
        if self.left < 0:
            raise TooManyEntriesError
        return max(count, 0)

    def number(self, size: int) -> int:
        """The next big-endian integer."""
        self.at += size
        return int.from_bytes(self.frame[self.at - size : self.at], "big", signed=True)

    def varint(self) -> int:
        """The next unsigned varint. Raises IndexError if there is none."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.frame[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise IndexError

    def length(self, size: int, *, is_compact: bool) -> int:
        """The length of a string (`size` is 2), or of bytes or an array (4); -1 if it is null."""
        return self.varint() - 1 if is_compact else self.number(size)


_Step = Callable[[_Bytes], None]


def check_entries(kind: type[Any], frame: bytes, at: int) -> None:
    """Raises TooManyEntriesError. `at` is the place of the body. A frame that is none is left to its reader."""
    if len(frame) <= KAFKA_REQUEST_ENTRIES_MAX:
        return
    found = _Bytes(frame, at)
    try:
        for step in _steps(kind):  # type: ignore[arg-type]  # a type is hashable
            step(found)
    except IndexError:
        return


@lru_cache(maxsize=1_024)  # kinds of kio, of which there are fewer for the versions that the gateway serves
def _steps(kind: type[Any]) -> tuple[_Step, ...]:
    is_compact = bool(kind.__flexible__)
    steps: list[_Step] = []
    fixed = 0
    for field in dataclasses.fields(kind):
        if "tag" in field.metadata:
            continue
        found = _step(field, is_compact=is_compact)
        if isinstance(found, int):
            fixed += found
            continue
        steps += [*_over(fixed), found]
        fixed = 0
    steps += _over(fixed)
    return (*steps, _tags) if is_compact else tuple(steps)


def _over(size: int) -> list[_Step]:
    def step(found: _Bytes) -> None:
        found.at += size

    return [step] if size else []


def _step(field: "dataclasses.Field[Any]", *, is_compact: bool) -> int | _Step:
    """The bytes of a field of fixed size, or what goes over it."""
    kind: Any = field.type
    is_nullable = get_origin(kind) is UnionType
    if is_nullable:
        kind = next(each for each in get_args(kind) if each is not NoneType)
    wire = field.metadata.get("kafka_type", "")
    if get_origin(kind) is tuple:
        return _array(get_args(kind)[0], wire, is_compact=is_compact)
    return _one(kind, wire, is_compact=is_compact, is_nullable=is_nullable)


def _one(kind: Any, wire: str, *, is_compact: bool, is_nullable: bool = False) -> int | _Step:
    if wire in _FIXED:
        return _FIXED[wire]
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        entity = kind

        def struct(found: _Bytes) -> None:
            if not is_nullable or found.number(1) >= 0:
                for step in _steps(entity):
                    step(found)

        return struct
    size = 2 if wire == "string" else 4

    def text(found: _Bytes) -> None:
        length = found.length(size, is_compact=is_compact)  # first: it moves the place
        found.at += max(length, 0)

    return text


def _array(kind: Any, wire: str, *, is_compact: bool) -> _Step:
    inner = _one(kind, wire, is_compact=is_compact)

    def array(found: _Bytes) -> None:
        count = found.entries(found.length(4, is_compact=is_compact))
        if isinstance(inner, int):
            found.at += count * inner
            return
        for _ in range(count):
            inner(found)
            if found.at > len(found.frame):
                raise IndexError

    return array


def _tags(found: _Bytes) -> None:
    for _ in range(found.entries(found.varint())):
        found.varint()
        size = found.varint()
        found.at += size


async def in_parts(wanted: Sequence[T], answer: Callable[[T], Awaitable[A]]) -> list[A]:
    """What `answer` says of each, in the order of `wanted`. A request may name any number: none is refused for it.

    One request holds at most sixteen calls of the service, however large it is. The bound of a frame bounds the rest.
    Raises the first error of `answer`, and ends the other calls then.
    """
    found: dict[int, A] = {}
    rest = iter(enumerate(wanted))

    async def work() -> None:
        for number, each in rest:
            found[number] = await answer(each)

    workers = [asyncio.create_task(work()) for _ in range(min(_AT_ONCE, len(wanted)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for each in workers:
            each.cancel()
    return [found[number] for number in range(len(wanted))]
