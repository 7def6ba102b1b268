"""Targets on AWS: each kind by its own adapter.

The role that delivers, and the networks it may reach, by the environment.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from botocore.config import Config

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PUSH_CALLS_AT_ONCE
from penstock_core.mirror.push import MirrorPush, PushAnswer
from penstock_core.push.batch import Answer, Failed, PushBatch
from penstock_core.push.targets.public_address import Network, parse_networks
from penstock_core.push.targets.target import (
    BusTarget,
    FunctionTarget,
    HttpsTarget,
    QueueTarget,
    StageTarget,
    Target,
    TopicTarget,
)
from penstock_service.adapters.https_target import HttpsEndpoints
from penstock_service.adapters.on_demand import OnDemand
from penstock_service.adapters.targets.bus import EventBuses
from penstock_service.adapters.targets.calls import EntryCalls
from penstock_service.adapters.targets.endpoint import Endpoints
from penstock_service.adapters.targets.function import LambdaFunctions
from penstock_service.adapters.targets.queue import SqsQueues
from penstock_service.adapters.targets.stage import KeysOf, MirrorRoles, RoleKeys, Stages
from penstock_service.ports.runtime import Clock, Runtime

_ACCOUNT_AT = 4  # "arn:aws:iam::<account>:role/<name>"
_READ_MARGIN_S = 2  # Lambda answers at once when a function's time is over
_USER_AGENT = "penstock"
_ENTRIES = Config(  # a call ends within PUSH_CALL_MS_MAX
    retries={"mode": "standard", "total_max_attempts": 2},
    connect_timeout=1,
    read_timeout=3,
    max_pool_connections=PUSH_CALLS_AT_ONCE,
    user_agent=_USER_AGENT,
)
MakeClient = Callable[[str, Config], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPlaces:
    """The role that delivers, which the process may assume, and private networks whose endpoints it may call.

    Only the stage `local` has such networks.
    """

    role_arn: str
    private_networks: tuple[Network, ...] = ()


def parse_target_places(text: str | None) -> TargetPlaces | None:
    """The places of `<role's ARN>` or `<role's ARN>,<network>,<network>…`, None for no text.

    Raises INVALID_CONFIG for a part that is no network.
    """
    if not text:
        return None
    role_arn, _, networks = text.partition(",")
    return TargetPlaces(role_arn=role_arn, private_networks=parse_networks(networks))


class TargetsByKind:
    """Targets: the port documents its methods. Each kind has its adapter."""

    def __init__(
        self,
        functions: LambdaFunctions,
        queues: SqsQueues,
        buses: EventBuses,
        endpoints: HttpsEndpoints,
        clock: Clock,
        *,
        stage_keys: KeysOf,
    ) -> None:
        self._functions = functions
        self._queues = queues
        self._buses = buses
        self._endpoints = Endpoints(endpoints, clock)
        self._stages = Stages(endpoints, clock, stage_keys)

    def check(self, target: Target) -> None:
        match target:
            case FunctionTarget():
                self._functions.check(target)
            case QueueTarget():
                self._queues.check(target)
            case BusTarget():
                self._buses.check(target)
            case HttpsTarget():
                self._endpoints.check(target)
            case StageTarget():
                self._stages.check(target)
            case TopicTarget():
                raise _no_call(target)

    def deliver(self, target: Target, batch: PushBatch, timeout_ms: int) -> Answer:
        match target:
            case FunctionTarget():
                return self._functions.deliver(target, batch, timeout_ms)
            case QueueTarget():
                return self._queues.deliver(target, batch, timeout_ms)
            case BusTarget():
                return self._buses.deliver(target, batch, timeout_ms)
            case HttpsTarget():
                return self._endpoints.deliver(target, batch, timeout_ms)
            case TopicTarget() | StageTarget():
                raise _no_call(target)

    def mirror(self, target: StageTarget, push: MirrorPush, timeout_ms: int) -> PushAnswer | Failed:
        return self._stages.push(target, push, timeout_ms)


class AwsTargets(TargetsByKind):
    """Makes a client when it first needs it.

    Functions, queues and buses must be in the account of the role: policies of theirs let the role in, and across
    accounts the role would need a policy of its own that names them.
    """

    def __init__(self, places: TargetPlaces, client: MakeClient, runtime: Runtime) -> None:
        calls = EntryCalls(runtime.clock, runtime.executor)
        self._role_arn = places.role_arn
        roles = MirrorRoles(sts=OnDemand(lambda: client("sts", _ENTRIES)), external_id=places.role_arn)
        super().__init__(
            LambdaFunctions(_LambdaClients(client).client, places.role_arn),
            SqsQueues(OnDemand(lambda: client("sqs", _ENTRIES)), calls, places.role_arn),
            EventBuses(OnDemand(lambda: client("events", _ENTRIES)), calls, places.role_arn),
            HttpsEndpoints(runtime.clock, allowed_private=places.private_networks),
            runtime.clock,
            stage_keys=RoleKeys(roles, runtime.clock).of,
        )

    def check(self, target: Target) -> None:
        match target:
            case FunctionTarget() | BusTarget():
                self._check_account(target.arn.split(":")[_ACCOUNT_AT], target)
            case QueueTarget():
                self._check_account(urlsplit(target.url).path.split("/")[1], target)
        super().check(target)

    def _check_account(self, account: str, target: Target) -> None:
        own = self._role_arn.split(":")[_ACCOUNT_AT]
        if account != own:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"{target} is in account {account}: a subscription delivers to functions, queues and buses of its own "
                f"account {own}; take an https endpoint, or a queue or bus here that passes on",
            )


class _LambdaClients:
    """A client of Lambda for each time-out. None repeats a call: the function would run twice at once."""

    def __init__(self, client: MakeClient) -> None:
        self._make = client
        self._clients: dict[int, Any] = {}
        self._lock = threading.Lock()

    def client(self, timeout_ms: int) -> Any:
        with self._lock:
            if timeout_ms not in self._clients:
                config = Config(
                    retries={"total_max_attempts": 1},
                    connect_timeout=2,
                    read_timeout=timeout_ms / 1_000 + _READ_MARGIN_S,
                    tcp_keepalive=True,
                    user_agent=_USER_AGENT,
                )
                self._clients[timeout_ms] = self._make("lambda", config)
            return self._clients[timeout_ms]


def _no_call(target: TopicTarget | StageTarget) -> ValueError:
    return ValueError(f"{target}: a copy to a topic is a transaction, and a mirror takes pushes: neither is a delivery")
