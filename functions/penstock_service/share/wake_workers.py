"""Wake the consumers of a share group that wait for records that come back (docs/adr/0025, 0040).

```
channel                       event, JSON text
/wake/<share group id>/share  {"share_group_id": "…", "topic_id": "…", "partition": 3}
```
An acknowledgement that takes a waiter out of a share item sends it. So does one whose answer was lost, and one that
repeats a release: they do not know whether the first try has sent it.
"""

import json
from collections.abc import Iterable

from penstock_core.log.wake_up import NAMESPACE, WakeUpMessage
from penstock_core.share.share_state import ShareKey
from penstock_service.instance.instance import Instance
from penstock_service.records.wake_readers import send_beside


def wake_workers(instance: Instance, keys: Iterable[ShareKey]) -> None:
    """Send one message for each partition, within `WAKE_UP_MS_MAX`. Costs what `send_beside` costs."""
    send_beside(instance, [_message(key) for key in dict.fromkeys(keys)], lambda: None)


def _message(key: ShareKey) -> WakeUpMessage:
    event = {"share_group_id": key.share_group_id, "topic_id": key.topic_id, "partition": key.partition}
    return WakeUpMessage(
        channel=f"/{NAMESPACE}/{key.share_group_id}/share", event=json.dumps(event, separators=(",", ":"))
    )
