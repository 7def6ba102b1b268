"""As by_lambda, in an event loop, by aiohttp: the extra `penstock[async]`."""

import asyncio
from collections.abc import Mapping

from penstock.http.aiohttp_transport import AiohttpConnections
from penstock.http.connections import NoAnswerError
from penstock.http.http_message import Response
from penstock.transports.by_lambda import Invocations
from penstock.transports.functions_place import FunctionsAccess, find_functions


class AsyncLambdaTransport:
    """As LambdaTransport. Events are built, signed and read in the loop's threads: a body may have 4 MiB."""

    def __init__(self, access: FunctionsAccess) -> None:
        self._invocations = Invocations(access)
        self._connections = AiohttpConnections()

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],  # noqa: ARG002 - the service answers the same for any
        body: bytes,
    ) -> Response:
        """As `LambdaTransport.call`, awaited."""
        targets = self._invocations.targets(method, path)
        event = await asyncio.to_thread(self._invocations.event, method, path, query, body)
        for target in targets:
            try:
                answer = await self._invoked(target, event)
            except NoAnswerError as error:
                raise self._invocations.no_answer(method, path, error) from error.__cause__
            if not self._invocations.is_denied(target, answer):
                break
        return await asyncio.to_thread(self._invocations.answer, method, target, answer)

    async def _invoked(self, target: str, event: bytes) -> Response:
        """As LambdaTransport has it, awaited."""
        signed = await asyncio.to_thread(self._invocations.signed, target, event)
        answer = await self._connections.send("POST", signed.url, signed.headers, event)
        shift_ms = self._invocations.shift_to_sign_again(signed, answer)
        if shift_ms is None:
            return answer
        signed = await asyncio.to_thread(self._invocations.signed, target, event, shift_ms)
        return await self._connections.send("POST", signed.url, signed.headers, event)

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """As EventSigner says: call it in a thread."""
        return self._invocations.event_headers(host, body)

    async def close(self) -> None:
        """Close the connections. A later call opens others."""
        await self._connections.close()


def open_async_transport(region: str | None = None) -> AsyncLambdaTransport:
    """As `open_transport` of by_lambda."""
    return AsyncLambdaTransport(find_functions(region))
