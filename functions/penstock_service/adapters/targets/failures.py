"""The failures of a target that one of AWS's clients reports, and their kinds (push/batch.py)."""

import re

from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from penstock_core.push.batch import Failed, Failure
from penstock_service.adapters.targets.role import ASSUME_ROLE

AWS_ERRORS = (ClientError, BotoCoreError)

_DENIED = re.compile("AccessDenied|NotAuthorized")
_MISSING = re.compile("NotFound|NonExistent|DoesNotExist")
# AWS answers many of these with status 400, as it does for a bad message. A code that is not among them is about the
# message. A refusal that is wrong costs attempts; an outage that is wrong keeps a bad record for ever.
_AWAY = re.compile(
    "Throttl|TooManyReq|LimitExceeded|OverLimit|Expired|Token|Signature|UnrecognizedClient|OptIn|KMS|Kms|SnapStart"
    "|Internal|Unavailable"
)
_ABOUT_THE_MESSAGE = (400, 413, 415)  # statuses


def failure_of(error: Exception) -> Failed:
    """The failure of a delivery. A time-out may be the fault of its records; an outage never is."""
    if isinstance(error, ReadTimeoutError):
        return Failed(failure=Failure.BROKEN, error=str(error))
    return Failed(failure=Failure.REFUSAL if _is_refusal(error) else Failure.AWAY, error=str(error))


def is_denied(error: Exception) -> bool:
    """True if the target's policy does not let the role in."""
    is_about_role = isinstance(error, ClientError) and error.operation_name == ASSUME_ROLE
    return not is_about_role and bool(_DENIED.search(error_code(error)))


def is_missing(error: Exception) -> bool:
    """True if the target does not exist."""
    return bool(_MISSING.search(error_code(error)))


def is_outage(code: str) -> bool:
    """True for the code of an error that tells nothing of a message."""
    return any(pattern.search(code) for pattern in (_DENIED, _MISSING, _AWAY))


def error_code(error: Exception) -> str:
    """AWS's code of the error; empty for an error of another kind."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def _is_refusal(error: Exception) -> bool:
    if not isinstance(error, ClientError) or is_outage(error_code(error)):
        return False
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in _ABOUT_THE_MESSAGE
