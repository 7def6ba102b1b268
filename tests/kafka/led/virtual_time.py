"""An event loop whose time jumps to the next thing that waits: hours of gateways and clients pass in a moment."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Jumps(selectors.SelectSelector):
    """Never sleeps: it moves the loop's time instead."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> Any:
        """Nothing is ready from outside, as nothing is outside."""
        assert timeout is not None, "everything waits for ever"
        if timeout > 0:
            self.loop.now_s += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Coroutines run in the same order each time, as long as no thread and no socket takes part."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        selector = _Jumps()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self.now_s


def virtual_ms() -> int:
    """The virtual time of the running loop, in whole milliseconds as the monotonic clock tells it."""
    return int(asyncio.get_running_loop().time() * 1_000)


def run_virtually(work: Coroutine[Any, Any, Result]) -> Result:
    """Run the work, and then cancel what is left."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
