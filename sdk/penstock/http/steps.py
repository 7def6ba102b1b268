"""Procedures that need I/O, written once for threads and for asyncio: generators that yield what they need.

A procedure yields an effect, and its driver sends the outcome or throws the error. The driver does the I/O.

    steps = calls.topic_metadata("orders")
    next(steps)                               # HttpRequest(method="GET", path="/v1/metadata", ...)
    steps.send({"name": "orders", ...})       # StopIteration: its value is the Topic

A driver may throw anything, also a cancellation: a procedure keeps its state in order at every yield.
"""

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from penstock.http.http_message import Document, HttpRequest

Effect = TypeVar("Effect")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Until the state that the procedure looks at changes, at the latest until `until_ms`. It may end for no reason."""

    until_ms: int


# Requests are answered by their documents, waits by an empty one.
Calls = Generator[HttpRequest, Document, Result]
Steps = Generator[HttpRequest | Wait, Document, Result]


def drive(steps: Generator[Effect, Answer, Result], do: Callable[[Effect], Answer]) -> Result:
    """Do what a procedure asks for until it ends. Raises what it raises."""
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
    """As `drive`. A cancellation is thrown into the procedure."""
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
