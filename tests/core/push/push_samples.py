"""Subscriptions that the tests of several layers share."""

from penstock_core.ids import Partition, SubscriptionId, SubscriptionName, TopicId, TopicName
from penstock_core.push.delivery import DeliveryKey
from penstock_core.push.lane import LaneKey
from penstock_core.push.subscription import Subscription, new_subscription_config
from penstock_core.push.targets.target import FunctionTarget, HttpsTarget

SECRET = "whsec_" + "QUJD" * 10
ID = SubscriptionId("ab" * 10)
PLAIN = Subscription(
    name=SubscriptionName("packing"),
    subscription_id=ID,
    topics={TopicName("orders"): TopicId("00ff")},
    target=FunctionTarget(arn="arn:aws:lambda:eu-west-1:123456789012:function:pack"),
)
FULL = Subscription(
    name=SubscriptionName("packing"),
    subscription_id=ID,
    version=3,
    created_at_ms=7,
    topics={TopicName("orders"): TopicId("00ff"), TopicName("bills"): TopicId("11ff")},
    target=HttpsTarget(url="https://example.com/hook", secret=SECRET),
    is_paused=True,
    config=new_subscription_config(
        {
            "mode": "parallel",
            "start": "earliest",
            "batch_records": 7,
            "batch_window_ms": 500,
            "concurrency": 20,
            "filter": {"type": ["order"]},
            "attempts_max": 9,
            "backoff_ms_min": 10,
            "backoff_ms_max": 20,
            "patience_ms": 30,
            "age_ms_max": 40,
            "bisect": False,
            "dead_letter_topic": "orders.dead",
        }
    ),
)
DELIVERY = DeliveryKey(subscription_id=ID, topic_id=TopicId("00ff"), partition=Partition(7))
LANE = LaneKey(subscription_id=ID, lane=3)
