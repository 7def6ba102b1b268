"""The bytes of a led group's document: JSON, compressed. It has the version of its format.

An unknown field is ignored, so that a later gateway may add one.

Where gateways keep the documents of led groups: in the service, by its routes.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any, Protocol

from penstock.api.group_admin_calls import StoredDocument, put_document, read_document
from penstock.http.async_client import AsyncClient
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KAFKA_LED_GROUP_BYTES_MAX
from penstock_kafka.groups.led.led_group import LedGroup, LedMember, Phase

_FORMAT = 1


def encoded(group: LedGroup) -> bytes:
    """The document's bytes."""
    content = {
        "format": _FORMAT,
        "protocol_type": group.protocol_type,
        "phase": group.phase.value,
        "round": group.round,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "members": {name: _member(each) for name, each in group.members.items()},
    }
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 6)


def decoded(data: bytes) -> LedGroup:
    """The inverse of `encoded`. Raises UNSUPPORTED_FORMAT for other bytes."""
    try:
        opener = zlib.decompressobj()
        text = opener.decompress(data, KAFKA_LED_GROUP_BYTES_MAX)
        if not opener.eof:
            raise ValueError("it is cut, or too large")
        content = json.loads(text)
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']}")
        return LedGroup(
            protocol_type=content["protocol_type"],
            phase=Phase(content["phase"]),
            round=content["round"],
            generation=content["generation"],
            protocol=content["protocol"],
            leader=content["leader"],
            members={name: _read_member(name, each) for name, each in content["members"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT, f"the group's document cannot be read: {error!r:.200}; delete the group"
        ) from error


def _member(member: LedMember) -> dict[str, Any]:
    return {
        "client_id": member.client_id,
        "session_ms": member.session_ms,
        "rebalance_ms": member.rebalance_ms,
        "protocols": [[name, _text(data)] for name, data in member.protocols],
        "gateway": member.gateway,
        "beats": member.beats,
        "has_joined": member.has_joined,
        "assignment": _text(member.assignment),
    }


def _read_member(name: str, content: Mapping[str, Any]) -> LedMember:
    return LedMember(
        member_id=name,
        client_id=content["client_id"],
        session_ms=content["session_ms"],
        rebalance_ms=content["rebalance_ms"],
        protocols=tuple((protocol, base64.b64decode(data)) for protocol, data in content["protocols"]),
        gateway=content["gateway"],
        beats=content["beats"],
        has_joined=content["has_joined"],
        assignment=base64.b64decode(content["assignment"]),
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


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
