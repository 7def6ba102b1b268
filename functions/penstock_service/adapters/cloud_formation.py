"""CloudFormation by botocore. An answer goes to a presigned URL of S3, by a plain PUT without a content type.

The URL is a secret: whoever has it may answer. No log and no error shows it.
"""

import logging
from functools import cache
from typing import Any

import botocore.session
import urllib3
from botocore.exceptions import BotoCoreError, ClientError

from penstock_core.errors import ErrorCode, PenstockError

_TIMEOUT_S = 5.0
_TRIES = urllib3.Retry(3, allowed_methods=None, status_forcelist=(500, 502, 503, 504), backoff_factor=0.5)
_ROLLING_BACK = ("ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_IN_PROGRESS")

logging.getLogger("urllib3").setLevel(logging.ERROR)  # it logs the URL with each retry


class AwsCloudFormation:
    """CloudFormation of the function's own region."""

    def answer(self, url: str, body: bytes) -> None:
        try:
            got = urllib3.PoolManager().request(
                "PUT", url, body=body, headers={"Content-Type": ""}, timeout=_TIMEOUT_S, retries=_TRIES
            )
        except urllib3.exceptions.HTTPError as error:
            why = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
            raise _unavailable("takes no answer", type(why).__name__) from None
        if got.status >= 300:
            raise _unavailable("takes no answer", got.status)

    def is_rolling_back(self, stack_id: str) -> bool:
        try:
            [stack] = _client().describe_stacks(StackName=stack_id)["Stacks"]
        except (BotoCoreError, ClientError) as error:
            raise _unavailable("does not describe the stack", error) from error
        return stack["StackStatus"] in _ROLLING_BACK


@cache
def _client() -> Any:
    return botocore.session.get_session().create_client("cloudformation")


def _unavailable(what: str, why: object) -> PenstockError:
    return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"CloudFormation {what}: {why}")
