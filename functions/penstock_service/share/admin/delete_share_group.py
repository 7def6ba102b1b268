"""Delete a share group: first the group, then its states. So no acquire makes a state for a group that is gone."""

from penstock_service.instance.instance import Instance
from penstock_service.share.share_partitions import partitions_of


def delete_share_group(instance: Instance, name: str) -> None:
    """Remove the group. All locks are lost.

    One read, one conditional delete, and one delete for each partition. Raises INVALID_NAME, UNKNOWN_SHARE_GROUP, and
    CONCURRENT_UPDATE if somebody else changes the group meanwhile. A deletion that dies behind the first delete leaves
    states that nothing reads: a group that is made anew has another id.
    """
    group = instance.share_group_cache.read_through(name)
    keys = [key for _, key in partitions_of(instance, group)]
    instance.stores.share.delete_group(group)
    instance.share_group_cache.forget(name)
    instance.executor.map(instance.stores.share.delete_state, keys).all_ok()
