"""Requests that cancel delayed records."""

from collections.abc import Sequence

from penstock.http.http_message import Response
from tests.chaos.exchanges.exchange import Outcome, Planned
from tests.history.format import Cancel, Function


class CancelExchange:
    """DELETE /v1/topics/{topic}/scheduled/{id}."""

    def __init__(self, path: str) -> None:
        parts = path.split("/")
        self.planned = [Planned(function=Function.CANCEL, ops=[Cancel(parts[3], parts[5])])]

    def outcomes(self, response: Response) -> Sequence[Outcome]:
        return [self.planned[0].ops]
