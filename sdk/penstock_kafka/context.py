"""The things that the gateway gives to each room when it starts."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from penstock_kafka.figures import Figures
from penstock_kafka.service.service import Service
from penstock_kafka.settings import Settings

Thing = TypeVar("Thing")

_log = logging.getLogger("penstock.kafka")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The service, the settings, and the tasks that outlive a request.

    The gateway calls `closers` when it stops, the last one first, after the last request was answered.
    """

    service: Service
    settings: Settings
    figures: Figures = field(default_factory=Figures)
    share_members: Counter[str] = field(default_factory=Counter)  # that this gateway serves, by share group
    closers: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    tasks: set["asyncio.Task[Any]"] = field(default_factory=set)
    shared: dict[type, object] = field(default_factory=dict)

    def share(self, kind: type[Thing], make: Callable[[], Thing]) -> Thing:
        """The one object of this kind that several rooms use. The first room that asks makes it."""
        if kind not in self.shared:
            self.shared[kind] = make()
        return cast("Thing", self.shared[kind])

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Run a task until it ends or the gateway stops. A defect in it is logged."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Call the closers, and end the tasks."""
        for closer in reversed(self.closers):
            await closer()
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(set(self.tasks))

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s has failed by a defect", task.get_name(), exc_info=task.exception())
