"""Targets of a process that delivers nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError

if TYPE_CHECKING:
    from penstock_core.push.batch import Answer, PushBatch
    from penstock_core.push.targets.target import Target

_WHY = "this process has no targets: its environment lacks PENSTOCK_TARGETS"


class NoTargets:
    """Targets: the port documents its methods. Each target is away: the caller needs an environment with targets."""

    def check(self, target: Target) -> None:  # noqa: ARG002 - no target is reached
        raise PenstockError(ErrorCode.INTERNAL, _WHY)

    def deliver(self, target: Target, batch: PushBatch, timeout_ms: int) -> Answer:  # noqa: ARG002 - as above
        from penstock_core.push.batch import Failed, Failure

        return Failed(failure=Failure.AWAY, error=_WHY)
