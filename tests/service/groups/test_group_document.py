"""The document of a group whose leader assigns: one writer wins, and it comes and goes with the group."""

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.groups.group import GroupDocument, checked_document
from penstock_core.ids import GroupName
from penstock_core.limits import GROUP_DOCUMENT_BYTES_MAX, GROUP_MEMBERS_MAX, PROTOCOL_TYPE_LENGTH_MAX
from penstock_service.groups.delete_group import delete_group
from penstock_service.groups.describe_group import describe_group, list_groups
from penstock_service.groups.expire_offsets import expire_offsets
from penstock_service.groups.group_document import alter_group, put_document, read_document
from penstock_service.instance.instance import Instance
from tests.support.group_member import GroupMember
from tests.support.refusals import refused
from tests.support.service import SteppedClock

GROUP = "workers"
DAY_MS = 24 * 3_600_000


def _document(data: bytes = b"a", members: int = 1) -> GroupDocument:
    return checked_document("connect", members, data)


def test_first_document_makes_the_group_and_lists_it(instance: Instance) -> None:
    refused(ErrorCode.UNKNOWN_GROUP, lambda: read_document(instance, GROUP))
    made = put_document(instance, GROUP, None, _document())
    assert read_document(instance, GROUP) == made
    assert made.document == _document()
    [(name, state)], _ = list_groups(instance.stores.memberships, 10, "", lambda _: True)
    assert (name, state) == (GROUP, made)


def test_document_is_replaced_by_the_caller_that_saw_it_last(instance: Instance) -> None:
    first = put_document(instance, GROUP, None, _document(b"a"))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: put_document(instance, GROUP, None, _document(b"x")))
    second = put_document(instance, GROUP, first.version, _document(b"b"))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: put_document(instance, GROUP, first.version, _document(b"c")))
    assert read_document(instance, GROUP) == second
    assert second.document is not None
    assert second.document.data == b"b"


def test_version_of_a_deleted_group_does_not_pass_for_that_of_a_new_one(instance: Instance) -> None:
    old = put_document(instance, GROUP, None, _document())
    delete_group(instance, GROUP)
    refused(ErrorCode.UNKNOWN_GROUP, lambda: put_document(instance, GROUP, old.version, _document()))
    put_document(instance, GROUP, None, _document())
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: put_document(instance, GROUP, old.version, _document()))


def test_document_is_refused_while_consumers_are_in_the_group(a: GroupMember, instance: Instance) -> None:
    a.beat()
    version = read_document(instance, a.group).version
    refused(ErrorCode.GROUP_NOT_EMPTY, lambda: put_document(instance, a.group, version, _document()))


def test_document_stays_when_settings_change(instance: Instance) -> None:
    put_document(instance, GROUP, None, _document())
    alter_group(instance, GROUP, {"offsets_retention_ms": DAY_MS})
    assert read_document(instance, GROUP).document == _document()
    assert describe_group(instance, GROUP).members == []


@pytest.mark.parametrize(("members", "is_left"), [(1, True), (0, False)])
def test_group_expires_only_without_members_in_its_document(
    instance: Instance, clock: SteppedClock, members: int, is_left: bool
) -> None:
    put_document(instance, GROUP, None, _document(members=members))
    alter_group(instance, GROUP, {"offsets_retention_ms": DAY_MS})
    clock.sleep_ms(3 * DAY_MS)
    expire_offsets(instance, budget_ms=1e6)
    assert (instance.stores.memberships.get_group(GroupName(GROUP)) is not None) == is_left


@pytest.mark.parametrize(
    ("kind", "members", "size"),
    [
        ("connect", 0, GROUP_DOCUMENT_BYTES_MAX + 1),
        ("connect", GROUP_MEMBERS_MAX + 1, 0),
        ("c" * (PROTOCOL_TYPE_LENGTH_MAX + 1), 0, 0),
        ("", 0, 0),
        ("consumer", 0, 0),
        ("a\x1b", 0, 0),
    ],
)
def test_document_out_of_its_bounds_is_refused(kind: str, members: int, size: int) -> None:
    refused(ErrorCode.INVALID_REQUEST, lambda: checked_document(kind, members, bytes(size)))


def test_largest_document_is_taken() -> None:
    checked_document("c" * PROTOCOL_TYPE_LENGTH_MAX, GROUP_MEMBERS_MAX, bytes(GROUP_DOCUMENT_BYTES_MAX))
