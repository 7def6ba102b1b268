"""One custom resource of a stack, as a template declares it."""

import json
from collections.abc import Mapping
from typing import Any

from penstock_handlers.edge.custom_resource import custom_resource_entry_point
from penstock_handlers.provision import settle
from penstock_service.instance.instance import Instance
from tests.handlers.service import CONTEXT
from tests.support.cloud_formation import MemoryCloudFormation, event_of

Answer = Mapping[str, Any]


class Template:
    """One custom resource of a stack: it remembers its id and properties between two deployments."""

    def __init__(self, to: Instance, kind: str, logical_id: str = "Orders", *, stack: str = "") -> None:
        self.stack = MemoryCloudFormation()
        self._handler = custom_resource_entry_point(settle, caller=lambda: self.stack)
        self._to, self._kind = to, kind
        self._ids = {"LogicalResourceId": logical_id} | ({"StackId": stack} if stack else {})
        self.resource_id = ""
        self.properties: Mapping[str, Any] = {}

    def create(self, **properties: object) -> Answer:
        return self._settled("Create", properties)

    def update(self, **properties: object) -> Answer:
        more = {"PhysicalResourceId": self.resource_id, "OldResourceProperties": self.properties}
        return self._settled("Update", properties, **more)

    def delete(self, resource_id: str | None = None) -> Answer:
        return self.send(
            event_of(
                "Delete",
                self._kind,
                self.properties,
                PhysicalResourceId=resource_id or self.resource_id,
                **self._ids,
            )
        )

    def send(self, event: Mapping[str, Any]) -> Answer:
        self._handler(event, CONTEXT)
        return self.stack.answers[-1]

    def _settled(self, request_type: str, properties: Mapping[str, object], **more: object) -> Answer:
        answer = self.send(event_of(request_type, self._kind, properties, **self._ids, **more))
        if answer["Status"] == "SUCCESS":
            self.resource_id, self.properties = answer["PhysicalResourceId"], properties
        return answer


def config(**settings: object) -> str:
    return json.dumps(settings)
