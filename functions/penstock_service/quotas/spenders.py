"""The quotas that a request spends: its principal's, and those of the topics that it names."""

from collections.abc import Iterable

from penstock_core.ids import TopicName
from penstock_core.quotas.quota import Subject
from penstock_service.instance.instance import Instance
from penstock_service.quotas.admit import Spender


def principal_spender(principal: str) -> Spender:
    """The principal of that name."""
    return Spender(subject=Subject.PRINCIPAL, name=principal, bucket_name=principal)


def topic_spenders(instance: Instance, topics: Iterable[str]) -> list[Spender]:
    """The topics that exist, each once. Their buckets have the topic's id: a topic made anew begins with full ones.

    One read for each topic that is not remembered. Sends none if the stage has no quotas of topics.
    """
    if not instance.quota_cache.has_quotas(Subject.TOPIC):
        return []
    return [spender for name in dict.fromkeys(topics) if (spender := topic_spender(instance, name)) is not None]


def topic_spender(instance: Instance, name: str) -> Spender | None:
    """The topic of that name, None if it does not exist: the use case says so. One read if it is not remembered."""
    topic = instance.topic_cache.find(name)
    return None if topic is None else Spender(subject=Subject.TOPIC, name=TopicName(name), bucket_name=topic.topic_id)
