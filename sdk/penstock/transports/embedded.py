"""The service inside the client's process: requests meet its handlers here, and storage is that of the stage in AWS.

For programs that may write to the stage's tables and buckets: docs/adr/0063. A process has one instance, as a Lambda
function has, and all its clients share it. No function, API or signature is between a client and the storage.

```mermaid
flowchart LR
    C[client] --> T[EmbeddedTransport] --> H[handlers and use cases] --> D[(DynamoDB)]
    H --> S[(S3)]
```

It needs the extra `penstock[embedded]`.

A producer that is open when the interpreter exits delivers what it has then. Python ends the pools of threads before
that, and starts no more. So the executor here is told a moment earlier, by the hook that the pools themselves are told
by, and still works.
"""

import concurrent.futures.thread  # noqa: F401 - registers its hook first
import logging
import os
import sys
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnectionError

from penstock.configuration import Configuration, aws_configuration
from penstock.errors import ConnectionFailedError, NotConfiguredError
from penstock.http.http_message import Response
from penstock.http.signature import event_headers
from penstock.http.threaded_transport import ThreadedTransport
from penstock.system import fork_count
from penstock.transports.embedded_storage import EmbeddedStage, find_embedded_stage
from penstock_core.errors import PenstockError
from penstock_core.limits import EMBEDDED_REQUEST_BYTES_MAX, EMBEDDED_THREADS_MAX
from penstock_core.outcomes import Outcomes
from penstock_handlers.edge.lambda_function import logger as handlers_logger
from penstock_handlers.router import dispatch
from penstock_service.adapters.aws import Storage, aws_instance
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.adapters.system import SequentialExecutor
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import Executor

STORAGE_CALLS = StorageCalls()  # of this process
_logger = logging.getLogger("penstock.embedded")
_handler = handlers_logger.registered_handler
A = TypeVar("A")
T = TypeVar("T")
_exiting = threading.Event()


if isinstance(_handler, logging.StreamHandler):  # in a function it writes to stdout, which is the program's here
    _handler.setStream(sys.stderr)


_SERVER_ERROR = 500
_STS = Config(retries={"total_max_attempts": 2}, connect_timeout=2, read_timeout=5)


class EmbeddedService:
    """An instance on a storage, the caller's name, and the threads of asynchronous clients. Sends no call at first.

    The caller is the principal of this process's credentials, as AWS STS tells it. Access rules, quotas and the audit
    trail count for that principal. They bind this program only if its authors let them (docs/adr/0063).
    """

    def __init__(self, instance: Instance, principal: Callable[[], str]) -> None:
        self.instance = instance
        self._principal = principal
        self.threads = ThreadPoolExecutor(EMBEDDED_THREADS_MAX, thread_name_prefix="penstock-embedded")

    @cached_property
    def principal_arn(self) -> str:
        """The ARN of the caller. The first use asks STS.

        Raises ConnectionFailedError if STS does not answer now, and NotConfiguredError if it will not.
        """
        return self._principal()

    def respond(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """The handlers' answer to a request."""
        telemetry = self.instance.telemetry
        with telemetry.of_request():
            try:
                return Response(
                    *dispatch(
                        method,
                        path,
                        query,
                        headers,
                        body,
                        self.instance,
                        self.principal_arn,
                        request_bytes_max=EMBEDDED_REQUEST_BYTES_MAX,
                    )
                )
            finally:
                for name, facts in telemetry.take()[1]:
                    _logger.warning("%s %s", name, facts)


class EmbeddedTransport:
    """A Transport that answers by the service of this process.

    `open_service` is called anew in a child by fork(). It gives the same service to threads that call it at once.
    """

    request_bytes_max = EMBEDDED_REQUEST_BYTES_MAX

    def __init__(self, open_service: Callable[[], EmbeddedService], open_signer: Callable[[], Configuration]) -> None:
        self._open_service = open_service
        self._open_signer = open_signer
        self._opened: tuple[int, EmbeddedService] | None = None

    @property
    def service(self) -> EmbeddedService:
        """The service of this process. The connections of a parent process are not used.

        Raises NotConfiguredError.
        """
        opened = self._opened
        if opened is None or opened[0] != fork_count():
            opened = self._opened = (fork_count(), self._open_service())
        return opened[1]

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Let the handlers answer the request, in this thread."""
        return self.service.respond(method, path, query, headers, body)

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """As EventSigner says, by the credentials of this process. Raises NotConfiguredError."""
        return event_headers(self._open_signer(), host, body)

    def reader(self) -> Hashable:
        """The service of the process, which all its clients share."""
        return id(self.service)

    def close(self) -> None:
        """Nothing to close: the instance stays for the other clients of this process."""


_services: dict[tuple[int, EmbeddedStage], EmbeddedService] = {}
_opening = threading.Lock()


def _forked() -> None:
    """A thread of the parent may have held the lock, and there is none in the child to let it go."""
    global _opening
    _opening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def open_transport(region: str | None = None) -> EmbeddedTransport:
    """The service on the storage that embedded_storage.py finds. Sends no call, unless a stack has to be read.

    Raises NotConfiguredError.
    """
    stage = find_embedded_stage(region)
    return EmbeddedTransport(lambda: _service(stage), lambda: _signer(stage.storage))


def open_async_transport(region: str | None = None) -> ThreadedTransport:
    """As `open_transport`, for the asynchronous clients: the handlers run in `EMBEDDED_THREADS_MAX` threads."""
    transport = open_transport(region)
    return ThreadedTransport(transport, lambda: transport.service.threads)


def _service(stage: EmbeddedStage) -> EmbeddedService:
    """The service of this process on that stage's storage."""
    with _opening:
        key = (fork_count(), stage)
        if key not in _services:
            made = _instance(stage)
            executor = ExitingExecutor(made.executor, SequentialExecutor())
            _services[key] = EmbeddedService(replace(made, executor=executor), lambda: _caller(stage.storage))
        return _services[key]


def _instance(stage: EmbeddedStage) -> Instance:
    try:
        return aws_instance(stage.storage, STORAGE_CALLS, stage.acls)
    except BotoCoreError as error:
        raise NotConfiguredError(f"no client of AWS can be made: {error} Set AWS_REGION, or give region=") from error


def _signer(storage: Storage) -> Configuration:
    return aws_configuration("https://sts.amazonaws.com", storage.region, storage.access_key, storage.secret_key)


def _caller(storage: Storage) -> str:
    try:
        client: Any = boto3.client(
            "sts",
            config=_STS,
            region_name=storage.region,
            endpoint_url=storage.endpoint_url,
            aws_access_key_id=storage.access_key,
            aws_secret_access_key=storage.secret_key,
        )
        return str(client.get_caller_identity()["Arn"])
    except (BotoCoreError, ClientError) as error:
        if _may_pass(error):
            raise ConnectionFailedError(
                f"AWS STS does not answer whose credentials these are: {error}; in a VPC it needs an endpoint",
                maybe_applied=False,
            ) from error
        raise NotConfiguredError(
            f"AWS STS does not tell whose credentials these are: {error}; without them no call can be charged to a "
            "principal"
        ) from error


def _may_pass(error: BotoCoreError | ClientError) -> bool:
    """The same call may succeed later."""
    if isinstance(error, ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return status >= _SERVER_ERROR or error.response.get("Error", {}).get("Code") == "Throttling"
    return isinstance(error, HTTPClientError | NoConnectionError)


# Hooks run from the last one to the first. `concurrent.futures` has registered its own when it was imported.
threading._register_atexit(_exiting.set)  # type: ignore[attr-defined]  # of CPython, 3.9 and later


class ExitingExecutor:
    """An Executor: `side_by_side` until the interpreter exits, then `one_by_one`."""

    def __init__(self, side_by_side: Executor, one_by_one: Executor) -> None:
        self._side_by_side = side_by_side
        self._one_by_one = one_by_one

    def map(self, function: Callable[[A], T], items: Sequence[A]) -> Outcomes[T]:
        """As Executor says."""
        return self._current().map(function, items)

    def first_of(
        self,
        function: Callable[[A], T],
        items: Sequence[A],
        is_enough: Callable[[Sequence[T | PenstockError | None]], bool],
        grace_ms: int,
        *,
        timeout_ms: float | None = None,
        lanes: Sequence[str] = (),
        hedge_delays_ms: Sequence[float] = (),
    ) -> list[T | PenstockError | None]:
        """As Executor says."""
        return self._current().first_of(
            function,
            items,
            is_enough,
            grace_ms,
            timeout_ms=timeout_ms,
            lanes=lanes,
            hedge_delays_ms=hedge_delays_ms,
        )

    def _current(self) -> Executor:
        return self._one_by_one if _exiting.is_set() else self._side_by_side
