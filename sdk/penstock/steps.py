"""Procedures that need the world, written once for threads and for asyncio: generators that say what they need.

A procedure yields an effect, and is sent what came of it or thrown the error; whoever drives it does the I/O.

    steps = calls.topic_metadata("orders")
    next(steps)                               # Request(method="GET", path="/v1/metadata", ...)
    steps.send({"name": "orders", ...})       # StopIteration: its value is the Topic

What a driver throws may be anything, a cancellation too: a procedure keeps its state in order at every yield.
"""

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from penstock.http_message import Document, Request

Effect = TypeVar("Effect")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Until something has changed in what the procedure looks at, `until_ms` at the latest. May end for no reason."""

    until_ms: int


# Requests are answered by their documents, waits by an empty one.
Calls = Generator[Request, Document, Result]
Steps = Generator[Request | Wait, Document, Result]


def drive(steps: Generator[Effect, Answer, Result], do: Callable[[Effect], Answer]) -> Result:
    """Do what a procedure asks for until it is done. Raises what it raises."""
    try:
        effect = next(steps)
        while True:
            try:
                answer = do(effect)
            except BaseException as error:  # a KeyboardInterrupt too: the procedure takes back what it began
                effect = steps.throw(error)
            else:
                effect = steps.send(answer)
    except StopIteration as done:
        result: Result = done.value
        return result


async def drive_async(steps: Generator[Effect, Answer, Result], do: Callable[[Effect], Awaitable[Answer]]) -> Result:
    """As `drive`; a cancellation is thrown into the procedure."""
    try:
        effect = next(steps)
        while True:
            try:
                answer = await do(effect)
            except BaseException as error:  # asyncio.CancelledError too
                effect = steps.throw(error)
            else:
                effect = steps.send(answer)
    except StopIteration as done:
        result: Result = done.value
        return result
