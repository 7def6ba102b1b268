"""The document of a group whose leader assigns, as a Kafka gateway reads and replaces it (docs/protocol/gateway)."""

import base64
from dataclasses import dataclass

from penstock.api.calls import group_path
from penstock.http.http_message import json_request
from penstock.http.steps import Calls


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """The group's version, and its document: None in a group in which the service assigns."""

    version: int
    data: bytes | None


def read_document(group: str) -> Calls[StoredDocument]:
    """The group's document. Raises UNKNOWN_GROUP. One request."""
    answer = yield json_request("GET", f"{group_path(group)}/document")
    data = answer["document"]
    return StoredDocument(version=answer["version"], data=None if data is None else base64.b64decode(data))


def put_document(group: str, version: int | None, protocol_type: str, member_count: int, data: bytes) -> Calls[int]:
    """The new version, after this document has replaced the one of `version`; None makes the group. One request.

    Raises CONCURRENT_UPDATE if the version is another one. It is never sent again after a lost answer.
    """
    body = {
        "version": version,
        "protocol_type": protocol_type,
        "member_count": member_count,
        "document": base64.b64encode(data).decode(),
    }
    answer = yield json_request("PUT", f"{group_path(group)}/document", body=body)
    return int(answer["version"])
