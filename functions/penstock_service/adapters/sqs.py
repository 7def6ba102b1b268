"""RepairQueue on SQS."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import REPAIR_DELAY_MS

if TYPE_CHECKING:
    from penstock_core.log.repair import Look, Repair


class NoRepairQueue:
    """RepairQueue of a stage with one zone. A segment there has one copy, and no other to repair it from."""

    def send(self, message: Repair | Look) -> None:
        pass


class SqsRepairQueue:
    """RepairQueue: the port documents its method. Asks for its client at a message, because few instances send one."""

    def __init__(self, client: Callable[[], Any], url: str) -> None:
        self._client = client
        self._url = url

    def send(self, message: Repair | Look) -> None:
        from botocore.exceptions import BotoCoreError, ClientError  # a healthy zone has none

        from penstock_core.log.repair import Look, encode_message

        body, delay_s = encode_message(message), REPAIR_DELAY_MS // 1_000 if isinstance(message, Look) else 0
        try:
            self._client().send_message(QueueUrl=self._url, MessageBody=body, DelaySeconds=delay_s)
        except (ClientError, BotoCoreError) as error:
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE,
                f"SQS did not take the message {body:.200}: {error}",
                maybe_applied=True,
            ) from error
