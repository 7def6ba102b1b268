"""Read a group's committed offsets."""

from collections.abc import Sequence

from penstock_core.errors import ErrorCode
from penstock_core.groups.lease import CommittedOffset
from penstock_core.ids import parse_group_name
from penstock_core.limits import GROUP_PAGE_MAX
from penstock_core.storage.groups.lease_item import committed_of
from penstock_service.instance.instance import Instance


def committed_offsets(instance: Instance, group_name: str, topic_name: str | None) -> Sequence[CommittedOffset]:
    """The group's commits on one topic, or on all (None), sorted by topic and partition. All pages, one by one."""
    found: list[CommittedOffset] = []
    after: str | None = ""
    while after is not None:
        page, after = committed_page(instance, group_name, topic_name, after, GROUP_PAGE_MAX)
        found += page
    return sorted(found, key=lambda committed: (committed.topic, committed.partition.partition))


def committed_page(
    instance: Instance, group_name: str, topic_name: str | None, after: str, limit: int
) -> tuple[Sequence[CommittedOffset], str | None]:
    """Up to `limit` of the group's commits on one topic, or on all (None), and the `after` of the next page, or None.

    They come in the order of `str(committed.partition)`, from behind `after`, which is such a text or empty. Leaves out
    commits on topics that were deleted since, so a page may be empty and not the last. One query, and one read per
    topic. Raises INVALID_NAME, and UNKNOWN_TOPIC for `topic_name`.
    """
    group = parse_group_name(group_name)
    # Read past the cache: in a topic created again, the group would start from its offset in the old topic.
    only = None if topic_name is None else instance.topic_cache.read_through(topic_name).topic_id
    leases, has_more = instance.stores.groups.lease_page(group, only, after, limit)
    found = [committed for committed in map(committed_of, leases) if committed is not None]
    current = {only} if only else _current_ids(instance, found)
    alive = [committed for committed in found if committed.partition.topic_id in current]
    return alive, str(leases[-1].partition) if has_more else None


def _current_ids(instance: Instance, found: Sequence[CommittedOffset]) -> set[str]:
    """The ids that the topics of these commits have now."""
    names = list(dict.fromkeys(committed.topic for committed in found))
    topics = instance.executor.map(instance.topic_cache.read_through, names)
    for error in topics.errors:
        if error.code is not ErrorCode.UNKNOWN_TOPIC:
            raise error
    return {topic.topic_id for topic in topics.ok}
