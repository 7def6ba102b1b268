"""The document of a group whose leader assigns, as Kafka Connect's workers do (docs/protocol/gateway).

The gateways of such a group keep its members and assignments here, and change them by compare-and-set on the group's
`version`. The service does not read `data`.
"""

from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import GROUP_DOCUMENT_BYTES_MAX, GROUP_MEMBERS_MAX, PROTOCOL_TYPE_LENGTH_MAX
from penstock_core.plain_text import check_label

CONSUMER = "consumer"  # the type of each group in which the service assigns


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDocument:
    """`protocol_type` says what its members are, as "connect". `member_count` is for operators."""

    protocol_type: str
    member_count: int
    data: bytes


def checked_document(protocol_type: str, member_count: int, data: bytes) -> GroupDocument:
    """The document. Raises INVALID_REQUEST if a field is out of its bounds."""
    if not 1 <= len(protocol_type) <= PROTOCOL_TYPE_LENGTH_MAX or protocol_type == CONSUMER:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"protocol_type={shown(protocol_type)}: give 1 to {PROTOCOL_TYPE_LENGTH_MAX} characters, and not "
            f"{CONSUMER!r}, whose groups have no document",
        )
    check_label("protocol_type", protocol_type)
    if not 0 <= member_count <= GROUP_MEMBERS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"member_count={member_count}: a group has {GROUP_MEMBERS_MAX} members at most"
        )
    if len(data) > GROUP_DOCUMENT_BYTES_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"a document of {len(data)} bytes: {GROUP_DOCUMENT_BYTES_MAX} at most, so give the group fewer members or "
            "tasks",
        )
    return GroupDocument(protocol_type=protocol_type, member_count=member_count, data=data)
