"""The document of a group whose leader assigns, and its bounds."""

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import CONSUMER, GroupDocument, checked_document
from penstock_core.limits import GROUP_DOCUMENT_BYTES_MAX, GROUP_MEMBERS_MAX, PROTOCOL_TYPE_LENGTH_MAX


@pytest.mark.parametrize(
    ("protocol_type", "member_count", "size"),
    [
        ("connect", 2, 100),
        ("c", 0, 0),
        ("c" * PROTOCOL_TYPE_LENGTH_MAX, GROUP_MEMBERS_MAX, GROUP_DOCUMENT_BYTES_MAX),
    ],
)
def test_document_is_taken_when_each_field_is_within_its_bounds(
    protocol_type: str, member_count: int, size: int
) -> None:
    taken = checked_document(protocol_type, member_count, bytes(size))
    assert taken == GroupDocument(protocol_type=protocol_type, member_count=member_count, data=bytes(size))


@pytest.mark.parametrize(
    ("protocol_type", "member_count", "size", "words"),
    [
        ("", 1, 1, "protocol_type="),
        ("c" * (PROTOCOL_TYPE_LENGTH_MAX + 1), 1, 1, "protocol_type="),
        (CONSUMER, 1, 1, "have no document"),
        ("two\nlines", 1, 1, "protocol_type"),
        ("connect", -1, 1, "member_count=-1"),
        ("connect", GROUP_MEMBERS_MAX + 1, 1, f"member_count={GROUP_MEMBERS_MAX + 1}"),
        ("connect", 1, GROUP_DOCUMENT_BYTES_MAX + 1, f"{GROUP_DOCUMENT_BYTES_MAX} at most"),
    ],
)
def test_document_is_refused_when_a_field_is_out_of_its_bounds(
    protocol_type: str, member_count: int, size: int, words: str
) -> None:
    with pytest.raises(PenstockError, match=words) as refused:
        checked_document(protocol_type, member_count, bytes(size))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
