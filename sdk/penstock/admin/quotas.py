"""The part of the admin clients that manages quotas."""

from collections.abc import Mapping

from penstock.api import quota_calls
from penstock.http.async_client import AsyncClient
from penstock.http.client import Client
from penstock.quota_model import Quota


class QuotaMethods:
    """Quotas, in `Admin`."""

    _client: Client

    def list_quotas(self) -> list[Quota]:
        """All quotas, sorted by subject and name; one request per thousand."""
        return self._client.call(quota_calls.list_quotas())

    def set_quota(self, subject: str, name: str, limits: Mapping[str, int]) -> Quota:
        """Set all limits of a "principal" or a "topic"; the name "*" is the default of all without a quota.

        A limit that you leave out is taken away. A principal's name is the ARN of an IAM user or role, without a
        session. Takes effect everywhere within 30 seconds. Raises InvalidError, which names the value.
        """
        return self._client.call(quota_calls.set_quota(subject, name, limits))

    def delete_quota(self, subject: str, name: str) -> None:
        """Delete a quota: the default holds from then on. Raises NotFoundError if there is none."""
        self._client.call(quota_calls.delete_quota(subject, name))


class AsyncQuotaMethods:
    """Quotas, in `AsyncAdmin`."""

    _client: AsyncClient

    async def list_quotas(self) -> list[Quota]:
        """As `Admin.list_quotas`, awaited."""
        return await self._client.call(quota_calls.list_quotas())

    async def set_quota(self, subject: str, name: str, limits: Mapping[str, int]) -> Quota:
        """As `Admin.set_quota`, awaited."""
        return await self._client.call(quota_calls.set_quota(subject, name, limits))

    async def delete_quota(self, subject: str, name: str) -> None:
        """As `Admin.delete_quota`, awaited."""
        await self._client.call(quota_calls.delete_quota(subject, name))
