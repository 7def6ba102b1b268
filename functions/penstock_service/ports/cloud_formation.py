"""The port to CloudFormation, for the function that makes what a template declares."""

from typing import Protocol


class CloudFormation(Protocol):
    """The caller of a custom resource."""

    def answer(self, url: str, body: bytes) -> None:
        """Put the answer to the URL that the event names. Raises STORAGE_UNAVAILABLE if no try succeeds."""

    def is_rolling_back(self, stack_id: str) -> bool:
        """True while the stack goes back to its previous template. One call. Raises STORAGE_UNAVAILABLE."""
