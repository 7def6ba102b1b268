"""Delete a share group: first the group, then its states, and last the note of its deletion.

No state is made once the group is gone (`ShareStore.begin_state`). As long as the note exists, the retention run
deletes the states that a deletion has left (retention/remove_share_states.py).
"""

from penstock_core.ids import ShareGroupId
from penstock_core.share.share_group import deletion_note
from penstock_service.instance.instance import Instance
from penstock_service.share.share_partitions import states_that_may_be


def delete_share_group(instance: Instance, name: str) -> ShareGroupId:
    """Remove the group, and give its id. All locks are lost.

    One read of the group and of each topic, one transaction, one delete for each partition, and one for the note. The
    note stays if one of the topics was deleted, or if the group has left one: retention removes the rest. Raises
    INVALID_NAME, UNKNOWN_SHARE_GROUP, and CONCURRENT_UPDATE if somebody else changes the group meanwhile.
    """
    group = instance.share_group_cache.read_through(name)
    instance.stores.share.delete_group(group)
    instance.share_group_cache.forget(name)
    for topic in group.topics:
        instance.topic_cache.forget(topic)  # partitions that were added lately may have a state
    keys = [key for _, key in states_that_may_be(instance, group)]
    instance.executor.map(instance.stores.share.delete_state, keys).all_ok()
    if {key.topic_id for key in keys} == group.topic_ids:
        instance.stores.share.forget_group(deletion_note(group))
    return group.share_group_id
