"""The targets of subscriptions that a server on this machine reaches: endpoints, also without TLS on this machine."""

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.push.batch import Answer, Failed, Failure, PushBatch
from penstock_core.push.targets.public_address import parse_networks
from penstock_core.push.targets.target import HttpsTarget, Target
from penstock_service.adapters.https_target import HttpsEndpoints
from penstock_service.adapters.targets.endpoint import Endpoints
from penstock_service.ports.runtime import Clock

_THIS_MACHINE = "127.0.0.0/8,::1/128"
_WHY = (
    "penstock dev has no Lambda, SQS and EventBridge: give an https target, which may be http:// on 127.0.0.1, or a "
    "topic; `penstock local up` has all of them"
)


class DevTargets:
    """Targets: the port documents its methods."""

    def __init__(self, clock: Clock) -> None:
        self._endpoints = Endpoints(HttpsEndpoints(clock, allowed_private=parse_networks(_THIS_MACHINE)), clock)

    def check(self, target: Target) -> None:
        """As the port says. Raises INVALID_CONFIG for what only AWS has."""
        if not isinstance(target, HttpsTarget):
            raise PenstockError(ErrorCode.INVALID_CONFIG, _WHY)
        self._endpoints.check(target)

    def deliver(self, target: Target, batch: PushBatch, timeout_ms: int) -> Answer:
        """As the port says. What only AWS has is away."""
        if not isinstance(target, HttpsTarget):
            return Failed(failure=Failure.AWAY, error=_WHY)
        return self._endpoints.deliver(target, batch, timeout_ms)
