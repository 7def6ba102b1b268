"""The compactor is a process of its own, so its storage crosses as text."""

import json
from dataclasses import asdict

from penstock_service.adapters.aws import Storage, parse_zones
from tests.chaos.clients.compactor import storage_of_json


def test_storage_is_the_same_after_its_way_as_text() -> None:
    storage = Storage(
        topics_table="topics",
        log_table="log",
        groups_table="groups",
        repair_queue_url="http://queue",
        zones=parse_zones("a=bucket-a,b=bucket-b,c=bucket-c:fallback"),
        archive="archive",
        region="us-east-1",
    )
    assert storage_of_json(json.dumps(asdict(storage))) == storage
