"""The entry point of a function that CloudFormation calls for custom resources.

CloudFormation waits for an answer at a URL, until the resource's ServiceTimeout. So each event gets one, also where the
code has a defect. Source: CloudFormation user guide, "Custom resource request and response reference".
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock_core.errors import PenstockError
from penstock_handlers.edge.lambda_function import Stopwatch, cloud_formation, logger, observed
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import CloudFormation

RequestType = Literal["Create", "Update", "Delete"]
_REASON_BYTES_MAX = 2_000  # the whole answer has 4,096 bytes at most
_TRYING_MS_MAX = 25_000  # of the function's 50 s: IAM may need some seconds until it knows a new role
_PAUSE_MS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One event of a custom resource. CloudFormation makes a string of each number and boolean in the properties.

    `resource_id` is None on Create. `old_properties` is empty but for an Update.
    """

    request_type: RequestType
    resource_type: str
    stack_id: str
    request_id: str
    logical_id: str
    resource_id: str | None
    properties: Mapping[str, Any]
    old_properties: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The id of the resource as it is now, and the attributes that a template can get of it.

    If an Update answers another id, CloudFormation deletes the resource with the old one afterwards.
    """

    resource_id: str
    attributes: Mapping[str, str]


Settle = Callable[[Change, Instance, CloudFormation], Settled]


def custom_resource_entry_point(
    settle: Settle, *, caller: Callable[[], CloudFormation] | None = None
) -> Callable[[Mapping[str, Any], Any], None]:
    """The function that Lambda calls, around `settle`. It tries again for a while what another try may mend.

    `caller` None is AWS. Raises STORAGE_UNAVAILABLE if CloudFormation takes no answer, so that Lambda counts an error.
    """

    def serve(event: Mapping[str, Any], to: Instance, stopwatch: Stopwatch) -> None:
        stack = (caller or cloud_formation)()
        answer = {each: event[each] for each in ("StackId", "RequestId", "LogicalResourceId")}
        try:
            settled = _settle_in_time(settle, _change_of(event), to, stack)
        except Exception as error:
            answer |= {"Status": "FAILED", "Reason": _reason(error, event), "PhysicalResourceId": _id_of(event)}
        else:
            answer |= {"Status": "SUCCESS", "PhysicalResourceId": settled.resource_id, "Data": settled.attributes}
        logger.info("change", extra={"resource": event.get("ResourceType"), "total_ms": stopwatch.total_ms(), **answer})
        stack.answer(event["ResponseURL"], json.dumps(answer, ensure_ascii=False).encode())

    return observed(serve, uses_zones=False)


def _settle_in_time(settle: Settle, change: Change, to: Instance, stack: CloudFormation) -> Settled:
    end_ms = to.clock.monotonic_ms() + _TRYING_MS_MAX
    while True:
        try:
            return settle(change, to, stack)
        except PenstockError as error:
            if not error.code.is_retriable or to.clock.monotonic_ms() >= end_ms:
                raise
        to.clock.sleep_ms(_PAUSE_MS)


def _change_of(event: Mapping[str, Any]) -> Change:
    return Change(
        request_type=event["RequestType"],
        resource_type=event["ResourceType"],
        stack_id=event["StackId"],
        request_id=event["RequestId"],
        logical_id=event["LogicalResourceId"],
        resource_id=event.get("PhysicalResourceId"),
        properties=event["ResourceProperties"],
        old_properties=event.get("OldResourceProperties", {}),
    )


def _id_of(event: Mapping[str, Any]) -> str:
    """The id that the resource has. A Create that failed made none: its Delete then finds nothing by this id."""
    return str(event.get("PhysicalResourceId") or event["RequestId"])


def _reason(error: Exception, event: Mapping[str, Any]) -> str:
    if isinstance(error, PenstockError):
        return str(error).encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
    logger.exception("unexpected error")
    return f"an unexpected error, which is ours: the function's log has it, request {event['RequestId']}"
