"""All sections, in the order in which people read them."""

from penstock.tuning.client_options import CONSUMER, PRODUCER, SHARE_CONSUMER
from penstock.tuning.environment import CONNECTION, STORAGE
from penstock.tuning.gateway_options import GATEWAY
from penstock.tuning.service_configs import GROUP, SHARE_GROUP, SUBSCRIPTION, TOPIC
from penstock.tuning.setting import Section
from penstock.tuning.stage import STAGE

SECTIONS: tuple[Section, ...] = (
    CONNECTION,
    PRODUCER,
    CONSUMER,
    SHARE_CONSUMER,
    TOPIC,
    GROUP,
    SHARE_GROUP,
    SUBSCRIPTION,
    GATEWAY,
    STAGE,
    STORAGE,
)
BY_NAME = {section.name: section for section in SECTIONS}
