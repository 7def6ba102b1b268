"""Requests that name many things: each gets its own answer, and a few calls of the service are under way at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")

_AT_ONCE = 16


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
