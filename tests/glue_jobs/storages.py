"""A storage that no test calls."""

from penstock_service.adapters.aws import Storage, ZoneBucket

SOME_STORAGE = Storage(
    topics_table="topics",
    log_table="log",
    groups_table="groups",
    repair_queue_url="http://127.0.0.1:9/queue",
    zones=(ZoneBucket(name="a", bucket="bucket-a"),),
    archive="bucket-archive",
)
