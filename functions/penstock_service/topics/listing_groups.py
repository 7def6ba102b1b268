"""Share groups that list their topics by priority, and the partitions that these topics may have in all.

The bound keeps an acquire's search small: one read of heads and one of states see all partitions. Nothing else rests on
it. So of two changes at the same time both may pass, and such a group reads more partitions, in parts of 100.
"""

from penstock_core.limits import SHARE_GROUP_LIST_MAX
from penstock_core.log.topic import Topic
from penstock_core.share.share_group import ShareGroup, check_listed_partitions
from penstock_service.instance.instance import Instance


def check_listed(instance: Instance, group: ShareGroup, changed: Topic | None = None) -> None:
    """Raises INVALID_CONFIG if a group with topic_order=listed has too many partitions; `changed` is a topic to come.

    Costs one read for each topic that is not remembered.
    """
    if not group.config.is_listed:
        return
    known = {} if changed is None else {changed.name: changed}
    found = {name: known.get(name) or instance.topic_cache.find(name) for name in group.order}
    check_listed_partitions(group.name, {name: topic.partitions_to_come for name, topic in found.items() if topic})


def check_listing_groups(instance: Instance, old: Topic, new: Topic) -> None:
    """Raises INVALID_CONFIG if a topic gets more partitions than a group that lists it may have.

    Costs one query for each `SHARE_GROUP_LIST_MAX` groups, and what `check_listed` costs.
    """
    if new.partitions_to_come <= old.partitions_to_come:
        return
    after = ""
    while page := instance.stores.share.list_groups(after, SHARE_GROUP_LIST_MAX):
        for group in page:
            if group.topics.get(new.name) == new.topic_id:
                check_listed(instance, group, new)
        after = page[-1].name
