"""One client of the service for all connections of the gateway."""

from penstock.http.async_client import AsyncClient
from penstock.http.async_transport import AsyncTransport
from penstock.http.http_message import HttpRequest, Response
from penstock.http.steps import Calls, Result
from penstock.retry import RetryPolicy
from penstock_kafka.service.topic_directory import TopicDirectory


class Service:
    """Calls the service. Raises the classes of penstock.errors. `topics` is what the gateway knows of topics."""

    def __init__(self, transport: AsyncTransport, *, retry: RetryPolicy | None = None) -> None:
        self.client = AsyncClient(transport, retry=retry)
        self.topics = TopicDirectory(self.client)

    async def call(self, calls: Calls[Result]) -> Result:
        """Carry out a procedure of penstock.api, with retries."""
        return await self.client.call(calls)

    async def try_once(self, request: HttpRequest) -> Response:
        """One try of a request. The caller decides about another."""
        return await self.client.try_once(request)

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()
