"""Move records of a partition to another topic, in one transaction with the subscription's state there."""

from collections.abc import Sequence

from penstock_core.push.delivery import DeliveryState
from penstock_core.push.delivery_key import DeliveryKey
from penstock_core.transaction import DeliveryCommit
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.push.lane_work import overtaken
from penstock_service.share.dead_letters.move_records import MovedRecords, move_records


def move_with_state(
    instance: Instance, key: DeliveryKey, moved: Sequence[MovedRecords], state: DeliveryState, window: UpdateWindow
) -> DeliveryState:
    """Appends the batches and stores `state`, all or nothing. Each exactly once: the state's version refuses a second.

    Costs what `move_records` costs, and one read after a refusal: the own first attempt may have been applied. Raises
    CONCURRENT_UPDATE if another delivery has changed the state, and what `move_records` raises.
    """
    is_done = move_records(instance, moved, DeliveryCommit(key=key, state=state), window)
    if not is_done and instance.stores.push.find_deliveries([key]).get(key) != state:
        raise overtaken(key)
    return state
