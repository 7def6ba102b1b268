"""botocore's clients of the services, with Penstock's settings. Jobs and programs that embed the service use them."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
)
from botocore.handlers import add_expect_header
from botocore.utils import parse_timestamp

from penstock_core.limits import STORAGE_CONNECTIONS_MAX
from penstock_service.adapters.aws_clock import AwsClock, IdleGuard
from penstock_service.adapters.direct.places import Keys
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError, NeverSentError, NoAnswerError
from penstock_service.adapters.on_demand import OnDemand
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.ports.runtime import Clock

if TYPE_CHECKING:
    from penstock_service.adapters.aws import Storage


# botocore would join its own, of 16 parts, twice for each call, which takes a seventh of a warm append's CPU.
_USER_AGENT = "penstock"
# The driver must never send an append again (adapters/dynamodb/client.py).
_DYNAMODB = Config(
    retries={"total_max_attempts": 1},
    connect_timeout=1,
    read_timeout=5,
    max_pool_connections=STORAGE_CONNECTIONS_MAX,
    tcp_keepalive=True,
    user_agent=_USER_AGENT,
)
# Penstock makes its own checksums: each put has a CRC-32C, and for reads each batch has one. TLS protects bodies on
# their way, so the signature needs no hash of them.
_S3 = Config(
    retries={"mode": "standard", "total_max_attempts": 2},
    connect_timeout=1,
    read_timeout=5,
    max_pool_connections=STORAGE_CONNECTIONS_MAX,
    tcp_keepalive=True,
    user_agent=_USER_AGENT,
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
    s3={"payload_signing_enabled": False},
)
# A report must not delay the read that sends it.
_CONTROL = Config(retries={"total_max_attempts": 2}, connect_timeout=1, read_timeout=2, user_agent=_USER_AGENT)
# A message that is sent twice is one repeat more, as SQS gives some by itself. A lost one comes a quarter later.
_SQS = Config(retries={"total_max_attempts": 2}, connect_timeout=1, read_timeout=1, user_agent=_USER_AGENT)


class BotocoreDrivers:
    """Drivers: the protocol documents its methods. `calls` counts the calls to DynamoDB and S3.

    A `clock` that follows AWS hears of each answer of DynamoDB.
    """

    def __init__(self, storage: "Storage", calls: StorageCalls, clock: Clock | None = None) -> None:
        self._endpoint_url = storage.endpoint_url
        self._session = _session(storage)
        self._calls = calls
        self._clock = clock
        self._dynamodb = OnDemand(self._new_dynamodb)
        self.s3 = OnDemand(lambda: called(self._new_s3))
        self._sqs = OnDemand(lambda: self._client("sqs", _SQS))

    @property
    def dynamodb(self) -> Any:
        return self._dynamodb()

    @property
    def region(self) -> str:
        region: str = self._session.get_config_variable("region")
        return region

    def control(self, service: str) -> Any:
        return self._sqs() if service == "sqs" else self._client(service, _CONTROL)

    def keys(self) -> Keys:
        frozen = called(self._frozen_credentials)
        return Keys(frozen.access_key, frozen.secret_key, frozen.token)

    def clients_of_role(self, role_arn: str) -> Callable[[str, Any], Any]:
        from penstock_service.adapters.targets.calls import session_of_role  # which few functions need

        session = session_of_role(self._session, role_arn, self._endpoint_url)
        return _clients(session, self._endpoint_url)

    def _frozen_credentials(self) -> Any:
        credentials = self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        return credentials.get_frozen_credentials()

    def _client(self, service: str, config: Config) -> Any:
        return _clients(self._session, self._endpoint_url)(service, config)

    def _new_dynamodb(self) -> Any:
        driver = self._client("dynamodb", _DYNAMODB)
        self._calls.watch(driver)
        if isinstance(self._clock, AwsClock):
            self._clock.follow(driver)
        return BotocoreDriver(driver)

    def _new_s3(self) -> Any:
        s3 = self._client("s3", _S3)
        # With this header, each put would wait for an answer before S3 has a byte of its body.
        s3.meta.events.unregister("before-call.s3", add_expect_header)
        self._calls.watch(s3)
        return BotocoreDriver(s3)


def parse_time(value: Any) -> datetime:
    """Does what botocore's `parse_timestamp` does, which takes most of the CPU of listing 1,000 objects."""
    is_iso = isinstance(value, str) and value[10:11] == "T"
    return datetime.fromisoformat(value) if is_iso else parse_timestamp(value)


def _clients(session: botocore.session.Session, endpoint_url: str | None) -> Callable[[str, Any], Any]:
    def client(service: str, config: Config) -> Any:
        made = session.create_client(service, config=config, endpoint_url=endpoint_url)
        made.meta.events.register(
            f"before-send.{made.meta.service_model.service_id.hyphenize()}", IdleGuard(made.close).before_call
        )
        return made

    return client


def _session(storage: "Storage") -> botocore.session.Session:
    """A session of botocore's own: boto3 would load its resources and transfers, which no function uses."""
    session = botocore.session.get_session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
    if storage.region is not None:
        session.set_config_variable("region", storage.region)
    if storage.access_key is not None:
        session.set_credentials(storage.access_key, storage.secret_key)
    return session


class BotocoreDriver:
    """The client of a service, or the body of an answer of S3, whose bytes come while you read them."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)
        return partial(called, getattr(self._client, method))


def called(method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What the method returns. Raises DriverError for an error of botocore."""
    try:
        answer = method(*arguments, **named)
    except ClientError as error:
        told = error.response
        raise AnsweredError(
            told["Error"]["Code"],
            text=str(error),
            status=int(told.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)),
            item=told.get("Item"),
            reasons=told.get("CancellationReasons", ()),
        ) from error
    except (ConnectTimeoutError, EndpointConnectionError) as error:
        raise NeverSentError(str(error)) from error
    except BotoCoreError as error:
        raise NoAnswerError(str(error)) from error
    if isinstance(answer, dict) and "Body" in answer:
        answer["Body"] = BotocoreDriver(answer["Body"])
    return answer
