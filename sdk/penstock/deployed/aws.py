"""Calls to AWS with the caller's credentials. An error names the action of IAM and the resource, so you can act."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from penstock.jobs.deployed import client
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SDK_PAGES_MAX

_DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation", "Forbidden", "403"}
)


@dataclass(frozen=True, slots=True)
class Aws:
    """The clients of an account and region: `client` makes one by the name of its service."""

    client: Callable[[str], Any]

    def call(self, service: str, operation: str, on: str = "", **arguments: Any) -> dict[str, Any]:
        """One call. `on` names its resource in an error.

        Raises ACCESS_DENIED with the action of IAM, and INVALID_CONFIG for every other refusal and without an answer.
        Both tell AWS's own code as `aws_code`.
        """
        made = self.client(service)
        try:
            answer: dict[str, Any] = getattr(made, operation)(**arguments)
        except (BotoCoreError, ClientError) as error:
            action = f"{service}:{made.meta.method_to_api_mapping[operation]}"
            raise _refusal(error, f"{action} on {on}" if on else action) from error
        return answer

    def find(self, missing: str, service: str, operation: str, on: str = "", **arguments: Any) -> dict[str, Any] | None:
        """One call, None if AWS answers with the code `missing`. Raises as `call` does."""
        try:
            return self.call(service, operation, on, **arguments)
        except PenstockError as error:
            if aws_code(error) == missing:
                return None
            raise

    def pages(
        self, items: str, service: str, operation: str, on: str = "", *, cursor: str = "NextToken", **arguments: Any
    ) -> Iterator[Any]:
        """The items of all pages of a list. An answer has `cursor` where there is more, and the next call takes it."""
        start: dict[str, str] = {}
        for _ in range(SDK_PAGES_MAX):
            page = self.call(service, operation, on, **start, **arguments)
            yield from page.get(items, ())
            if not page.get(cursor):
                return
            start = {"Marker" if cursor == "NextMarker" else cursor: page[cursor]}


def aws_of(region: str | None) -> Aws:
    """The account of the usual AWS chain. Makes each client once."""
    return Aws(cache(lambda service: client(service, region)))


def aws_code(error: PenstockError) -> str:
    """AWS's own code of an error that `Aws` raised, "" for every other error."""
    return str(error.facts.get("aws_code", ""))


def _refusal(error: BotoCoreError | ClientError, what: str) -> PenstockError:
    if isinstance(error, BotoCoreError):
        return PenstockError(ErrorCode.INVALID_CONFIG, f"AWS did not answer {what}: {error}")
    code = error.response["Error"]["Code"]
    told = error.response["Error"].get("Message", "")
    if code in _DENIED:
        return PenstockError(
            ErrorCode.ACCESS_DENIED,
            f"your credentials may not {what} ({told:.300}): let them, and run the same command again",
            aws_code=code,
        )
    return PenstockError(ErrorCode.INVALID_CONFIG, f"AWS refused {what}: {code}: {told:.300}", aws_code=code)
