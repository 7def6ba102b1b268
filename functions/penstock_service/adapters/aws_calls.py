"""What a stage switches on when it is first needed: rules of EventBridge, and Lambda's pollers of queues.

Both begin switched off, because pollers of a queue that nobody uses cost money (docs/adr/0039).
"""

from collections.abc import Callable
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError

_ENABLED = ("Enabled", "Enabling")


class AwsCalls:
    """Calls to AWS's control services, each once. `client` gives the client of a service when it is first needed."""

    def __init__(self, client: Callable[[str], Any]) -> None:
        self._client = client

    def call(self, service: str, operation: str, **arguments: Any) -> Any:
        """The answer to `operation`. Raises STORAGE_UNAVAILABLE, `maybe_applied`."""
        from botocore.exceptions import BotoCoreError, ClientError  # which few instances need

        try:
            return getattr(self._client(service), operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE, f"{service} did not answer {operation}: {error}", maybe_applied=True
            ) from error

    def enable_rule(self, rule: str) -> None:
        """Lets the rule run. It may be repeated. One call."""
        self.call("events", "enable_rule", Name=rule)

    def open_queue(self, queue_arn: str) -> None:
        """Lets Lambda poll the queue. It may be repeated. One call, and one for each mapping that is off."""
        found = self.call("lambda", "list_event_source_mappings", EventSourceArn=queue_arn)
        for mapping in found["EventSourceMappings"]:
            if mapping["State"] not in _ENABLED:
                self.call("lambda", "update_event_source_mapping", UUID=mapping["UUID"], Enabled=True)
