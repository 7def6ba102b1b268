"""The failures of a target that one of AWS's clients reports, and their kinds (push/batch.py)."""

import re

from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from penstock_core.push.batch import Failed, Failure

AWS_ERRORS = (ClientError, BotoCoreError)

_DENIED = re.compile("AccessDenied|NotAuthorized")
_MISSING = re.compile("NotFound|NonExistent|DoesNotExist")
# AWS answers many of these with status 400, as it does for a bad message. A code that is not among them is about the
# message. A refusal that is wrong costs attempts; an outage that is wrong keeps a bad record for ever.
_AWAY = re.compile(
    "Throttl|TooMany|LimitExceeded|OverLimit|Expired|Token|Signature|UnrecognizedClient|OptIn|KMS|Kms|SnapStart"
)
_ABOUT_THE_MESSAGE = (400, 413, 415)  # statuses


def failure_of(error: Exception) -> Failed:
    """The failure of a delivery. A time-out may be the fault of its records; an outage never is."""
    if isinstance(error, ReadTimeoutError):
        return Failed(failure=Failure.BROKEN, error=str(error))
    return Failed(failure=Failure.REFUSAL if _is_refusal(error) else Failure.AWAY, error=str(error))


def is_denied(error: Exception) -> bool:
    """True if a policy is missing."""
    return bool(_DENIED.search(_code(error)))


def is_missing(error: Exception) -> bool:
    """True if the target does not exist."""
    return bool(_MISSING.search(_code(error)))


def _is_refusal(error: Exception) -> bool:
    if not isinstance(error, ClientError) or is_denied(error) or is_missing(error):
        return False
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status in _ABOUT_THE_MESSAGE and not _AWAY.search(_code(error))


def _code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""
