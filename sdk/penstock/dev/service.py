"""A running service: stores, background work and HTTP, from its start to its stop.

The deliveries of subscriptions, in threads of their own: a slow endpoint holds up no other work of the server.

Each delivery has a thread, and `_AT_ONCE` work at a time. So a slow endpoint holds up no other subscription either,
unless all threads wait for slow ones.
"""

import asyncio
import contextlib
import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.admin.admin import Admin
from penstock.dev.background import Background
from penstock.dev.functions import DevFunctions, FunctionPlace
from penstock.dev.gateway import ISSUER, Caller, DevTokens, Gateway
from penstock.dev.http_server import HttpServer
from penstock.dev.targets import Deliveries, dev_targets
from penstock.dev.wake_ups import DevWakeUps
from penstock.errors import TopicExistsError
from penstock.http.signature import SERVICE
from penstock.http.sigv4 import Keys, Scope
from penstock.system import monotonic_ms, new_member_id, wall_clock_ms
from penstock.testing import MemoryTransport
from penstock.tokens import TOKEN
from penstock_core.acls.rule import parse_principal_pattern
from penstock_core.acls.tokens import AclSettings, TokenSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.inline import BOUNDS_OF_PROFILES, InlineBounds
from penstock_core.push.targets.target import StageTarget
from penstock_handlers.edge.lambda_function import logger as handlers_logger
from penstock_handlers.router import LOCAL_PRINCIPAL
from penstock_service.adapters.absent import NoTimerTriggers
from penstock_service.adapters.direct.places import Keys as StageKeys
from penstock_service.adapters.memory.messages import MemoryDeliveryQueue, ReceivedMessage
from penstock_service.adapters.memory.service import memory_stores
from penstock_service.adapters.sqlite.service import StoredService, open_service
from penstock_service.adapters.system import SequentialExecutor, SystemClock, SystemEntropy
from penstock_service.adapters.tables.tables import Tables
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import Runtime
from penstock_service.push.look import deliver_received, start_due

REGION = "us-east-1"  # the server is in none, but a signature names one
HOST = "127.0.0.1"
LOCAL = "local"  # the caller that may do everything
_USERS = LOCAL_PRINCIPAL.removesuffix(LOCAL)
_WATCH_S = 0.5
_TICK_S = 0.5
_STOP_S = 5.0  # for endpoints that are answering when the server stops
_AT_ONCE = 16
logger = logging.getLogger("penstock.dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class DevAccess:
    """The access rules of a server: `acl_default`, and the names of users other than the one that may do everything.

    `subjects` have tokens in place of keys.
    """

    denies_by_default: bool = False
    principals: Sequence[str] = ()
    subjects: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to make at the start, unless it exists."""

    name: str
    partitions: int


class DevService:
    """One service in memory, or in the folder `data` too. `close` it.

    Appends within `small` become items. Subscriptions call `functions`. What queues and buses would have got goes into
    the file `deliveries`, too. It calls other servers with its own `keys`, so mirrors have the same ones. Raises
    INVALID_CONFIG if the folder cannot be used.
    """

    def __init__(
        self,
        data: Path | None = None,
        access: DevAccess | None = None,
        *,
        functions: Sequence[FunctionPlace] = (),
        deliveries: Path | None = None,
        keys: Keys | None = None,
        small: InlineBounds = BOUNDS_OF_PROFILES["express3"],
    ) -> None:
        self._clock = StoppableClock()
        self._stored: StoredService | None = None if data is None else open_service(data, self._clock)
        tables = Tables(self._clock.now_ms) if self._stored is None else self._stored.tables
        stores = memory_stores(tables=tables, clock=self._clock) if self._stored is None else self._stored.stores
        runtime = Runtime(clock=self._clock, entropy=SystemEntropy(), executor=SequentialExecutor())
        queue = MemoryDeliveryQueue(self._clock)
        self.functions, self.delivered = tuple(functions), Deliveries(deliveries)
        called = DevFunctions(functions)
        called.check()
        self.keys = keys or Keys(self._remembered("access_key", "penstock-dev-"), self._remembered("secret_key", ""))
        targets = dev_targets(self._clock, called, self.delivered, self._keys_of_a_push)
        self.wake_ups = DevWakeUps(lambda: self.callers.values(), REGION)
        stores = replace(
            stores,
            small=small,
            deliveries=queue,
            targets=targets,
            timer_triggers=NoTimerTriggers(),
            wake_ups=self.wake_ups,
        )
        access = access or DevAccess()
        settings = AclSettings(
            allows_by_default=not access.denies_by_default,
            super_principals=(parse_principal_pattern(LOCAL_PRINCIPAL),),
            tokens=TokenSettings(issuer=ISSUER),
        )
        self.instance = Instance.new(stores, runtime, acl_settings=settings)
        self.callers = {LOCAL: Caller(self.keys, LOCAL_PRINCIPAL)} | {
            name: Caller(self._keys_of(name), f"{_USERS}{name}") for name in access.principals
        }
        self.tokens = DevTokens(secret=self._remembered("token_secret", ""))
        self.subjects = frozenset(access.subjects)
        self._background = Background(self.instance, tables, self.settle)
        self._deliveries = DeliveryThreads(self.instance, queue, self.settle)

    @property
    def failure(self) -> str | None:
        """The reason why the service cannot go on, such as a full disk. None while it can."""
        return None if self._stored is None else self._stored.database.failure

    def _keys_of_a_push(self, _: StageTarget) -> tuple[StageKeys, str]:
        """Each push to a mirror asks for them: the mirror gets nothing that a crash takes from this side."""
        self.settle()
        return StageKeys(self.keys.access_key, self.keys.secret_key), REGION

    def settle(self) -> None:
        """Return once everything so far survives a crash, if the service has a folder."""
        if self._stored is not None:
            self._stored.settle()

    def create(self, topics: Sequence[NewTopic]) -> None:
        """Make the topics that do not exist."""
        admin = Admin(transport=MemoryTransport(self.instance))
        for topic in topics:
            with contextlib.suppress(TopicExistsError):
                admin.create_topic(topic.name, topic.partitions)
        self.settle()

    def environment(self, port: int, name: str = LOCAL) -> Mapping[str, str]:
        """The environment variables by which clients find the service, and with which they are that caller."""
        url = f"http://{HOST}:{port}"
        if name in self.subjects:
            return {"PENSTOCK_URL": url, TOKEN: self.tokens.issue(name, wall_clock_ms() / 1_000)}
        keys = self.callers[name].keys
        return {
            "PENSTOCK_URL": url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,  # the one that boto3 reads
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
        }

    def stop_waiting(self) -> None:
        """End all calls that wait for records: they answer that the server is stopping."""
        self._clock.stop()

    def close(self) -> None:
        """End the background work, write what is left, and give up the folder."""
        self._deliveries.close()
        self._background.close()
        if self._stored is not None:
            self._stored.close()

    def _keys_of(self, name: str) -> Keys:
        return Keys(f"{self.keys.access_key}.{name}", self._remembered(f"secret_key.{name}", ""))

    def _remembered(self, name: str, prefix: str) -> str:
        made = prefix + new_member_id()
        return made if self._stored is None else self._stored.remembered(name, made)


def log_to_stderr(*, verbose: bool) -> None:
    """Send log lines to stderr, those of the handlers too; with `verbose` one for each request."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("penstock.dev").setLevel(logging.INFO if verbose else logging.WARNING)
    handler = handlers_logger.registered_handler
    if isinstance(handler, logging.StreamHandler):
        handler.setStream(sys.stderr)


async def serve(
    service: DevService,
    listening: socket.socket,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[], None],
) -> None:
    """Serve until `stop` is set or the service has failed. Closes the socket, not the service."""
    gateway = Gateway(
        instance=service.instance,
        callers={caller.keys.access_key: caller for caller in service.callers.values()},
        scope=Scope(region=REGION, service=SERVICE),
        settle=service.settle,
        tokens=service.tokens,
    )
    server = HttpServer(gateway, service.wake_ups)
    try:
        await server.start(listening)
        on_ready()
        while not stop.is_set() and service.failure is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _WATCH_S)
    finally:
        service.stop_waiting()
        await server.close()


class StoppableClock(SystemClock):
    """The system's clock. After `stop`, a sleep ends with an error that clients try again: the server goes away."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def sleep_ms(self, duration_ms: float) -> None:
        """Raises STORAGE_UNAVAILABLE if the clock is stopped before the sleep is over."""
        if self._stopped.wait(duration_ms / 1_000):
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE, "the server is stopping: try again once it runs", maybe_applied=True
            )

    def stop(self) -> None:
        """End all sleeps, now and later."""
        self._stopped.set()


class DeliveryThreads:
    """Delivers what is due until it is closed. `settle` is called after each delivery."""

    def __init__(self, instance: Instance, queue: MemoryDeliveryQueue, settle: Callable[[], None]) -> None:
        self._instance = instance
        self._queue = queue
        self._settle = settle
        self._stopping = threading.Event()
        self._working: list[threading.Thread] = []
        queue.switch_on()  # a folder may hold subscriptions from before
        self._thread = threading.Thread(target=self._loop, name="penstock-deliveries", daemon=True)
        self._thread.start()

    def run_once(self) -> None:
        """Begin the deliveries that are due, as many as there is room for. What fails comes again later."""
        self._attempt(lambda: start_due(self._instance))
        self._working = [each for each in self._working if each.is_alive()]
        while len(self._working) < _AT_ONCE and (received := self._queue.receive()):
            thread = threading.Thread(target=self._deliver, args=(received[0],), name="penstock-delivery", daemon=True)
            self._working.append(thread)
            thread.start()

    def close(self) -> None:
        """Begin no further delivery, and wait a moment for those that run."""
        self._stopping.set()
        stops_ms = monotonic_ms() + _STOP_S * 1_000
        for each in (self._thread, *self._working):
            each.join(max(0.0, stops_ms - monotonic_ms()) / 1_000)

    def _deliver(self, received: ReceivedMessage) -> None:
        def deliver() -> None:
            deliver_received(self._instance, self._queue, received)
            self._settle()

        self._attempt(deliver)

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except PenstockError as error:
            logger.warning("a delivery failed, and comes again: %s", error)
        except Exception:
            logger.exception("a delivery failed by a defect, and comes again")

    def _loop(self) -> None:
        while not self._stopping.wait(_TICK_S):
            self.run_once()
