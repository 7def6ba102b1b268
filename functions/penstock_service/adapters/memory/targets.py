"""Targets in memory: a function answers in place of each target."""

from collections.abc import Callable

from penstock_core.errors import PenstockError
from penstock_core.push.batch import Answer, Answered, PushBatch
from penstock_core.push.targets.target import Target


class MemoryTargets:
    """Targets: the port documents its methods.

    `answer` answers each delivery: all records are handled unless you replace it. `deliveries` are those that were
    made. `refusal` is what `check` raises, None for nothing.
    """

    def __init__(self) -> None:
        self.deliveries: list[tuple[Target, PushBatch]] = []
        self.answer: Callable[[Target, PushBatch], Answer] = lambda _target, _batch: Answered()
        self.refusal: PenstockError | None = None

    def check(self, target: Target) -> None:  # noqa: ARG002 - the refusal is that of all targets
        if self.refusal is not None:
            raise self.refusal

    def deliver(self, target: Target, batch: PushBatch, timeout_ms: int) -> Answer:  # noqa: ARG002 - it answers at once
        self.deliveries.append((target, batch))
        return self.answer(target, batch)
