"""The APIs that the gateway serves. The rooms declare them (apis.py lists the rooms)."""

from collections.abc import Iterable

from penstock_kafka.dispatch.api import Answer, Api, ApiKey, Call
from penstock_kafka.errors import KafkaError

_API_VERSIONS = (0, 4)
_API_VERSIONS_BYTES_MAX = 16 * 1024  # clients that have not logged in may send it


class Registry:
    """APIs by their keys. It serves ApiVersions itself."""

    def __init__(self, apis: Iterable[Api]) -> None:
        own = Api(
            key=ApiKey.API_VERSIONS,
            versions=_API_VERSIONS,
            handler=self._api_versions,
            is_before_login=True,
            bytes_max=_API_VERSIONS_BYTES_MAX,
        )
        self._apis: dict[int, Api] = {}
        for each in (own, *apis):
            if each.key in self._apis:
                raise ValueError(f"two handlers declare {each.key.name}")
            self._apis[each.key] = each

    def find(self, key: int, version: int) -> Api | None:
        """The API that serves this version, or None."""
        api = self._apis.get(key)
        return api if api is not None and api.versions[0] <= version <= api.versions[1] else None

    def bytes_max(self, key: int, *, is_in: bool) -> int:
        """The bytes of a request to this API at most; 0 if there is no such API, or a login must come first."""
        api = self._apis.get(key)
        return api.bytes_max if api is not None and (is_in or api.is_before_login) else 0

    def versions(self, error: KafkaError = KafkaError.none) -> Answer:
        """The answer to ApiVersions."""
        keys = [
            {"api_key": int(each.key), "min_version": each.versions[0], "max_version": each.versions[1]}
            for each in sorted(self._apis.values(), key=lambda api: api.key)
        ]
        return {"error_code": error, "api_keys": keys}

    async def _api_versions(self, call: Call) -> Answer:  # noqa: ARG002 - the answer is the same for each client
        return self.versions()
