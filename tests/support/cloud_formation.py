"""CloudFormation as the function `provision` meets it, in memory: it sends events, and keeps the answers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock_core.errors import PenstockError

STACK_ID = "arn:aws:cloudformation:eu-west-1:1:stack/Shop/1"
ANSWER_BYTES_MAX = 4_096


@dataclass
class MemoryCloudFormation:
    """The port of the function. `refusal` is raised instead of taking an answer."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    is_in_rollback: bool = False
    refusal: PenstockError | None = None

    def answer(self, url: str, body: bytes) -> None:
        assert url == "https://answers.example/1"
        if self.refusal is not None:
            raise self.refusal
        assert len(body) <= ANSWER_BYTES_MAX
        self.answers.append(json.loads(body))

    def is_rolling_back(self, stack_id: str) -> bool:
        assert stack_id == STACK_ID
        return self.is_in_rollback


def event_of(request_type: str, kind: str, properties: Mapping[str, Any], **more: object) -> dict[str, Any]:
    """An event as CloudFormation sends it: numbers and booleans of the properties are strings."""
    return {
        "RequestType": request_type,
        "RequestId": "request-1",
        "StackId": STACK_ID,
        "ResponseURL": "https://answers.example/1",
        "ResourceType": f"Custom::Penstock{kind}",
        "LogicalResourceId": "Orders",
        "ResourceProperties": {"ServiceToken": "arn:…", "ServiceTimeout": "60", **properties},
        **more,
    }
