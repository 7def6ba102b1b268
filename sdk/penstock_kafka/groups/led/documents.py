"""Where gateways keep the documents of led groups: in the service, by its routes."""

from typing import Protocol

from penstock.api.group_admin_calls import StoredDocument, put_document, read_document
from penstock.http.async_client import AsyncClient
from penstock_core.errors import ErrorCode, PenstockError


class Documents(Protocol):
    """Documents of groups, changed by compare-and-set. Each method may raise PenstockError."""

    async def read(self, group: str) -> StoredDocument | None:
        """The group's document, None if there is no such group."""

    async def write(self, group: str, version: int | None, protocol_type: str, member_count: int, data: bytes) -> int:
        """The version after the write. CONCURRENT_UPDATE: the group's version is another one. One try."""


class DocumentService:
    """Documents in the service."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def read(self, group: str) -> StoredDocument | None:
        """One request, repeated if it fails in passing."""
        try:
            return await self._client.call(read_document(group))
        except PenstockError as error:
            if error.code is ErrorCode.UNKNOWN_GROUP:
                return None
            raise

    async def write(self, group: str, version: int | None, protocol_type: str, member_count: int, data: bytes) -> int:
        """One request."""
        return await self._client.call(put_document(group, version, protocol_type, member_count, data))
