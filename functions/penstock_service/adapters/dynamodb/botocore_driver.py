"""A client of botocore as a driver: it takes and gives the same, and its errors are those of `driver_errors`."""

from collections.abc import Callable
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, EndpointConnectionError

from penstock_service.adapters.dynamodb.driver_errors import AnsweredError, NeverSentError, NoAnswerError


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
