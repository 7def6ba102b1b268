from penstock.testing import MemoryPenstock
from penstock_import.progress.progress_topic import ProgressTopic


def test_topic_keeps_its_notes_for_ever_and_is_made_once() -> None:
    service = MemoryPenstock()
    progress = ProgressTopic(service.transport, "orders", "kafka:c1/orders")
    progress.create(service.admin())
    progress.create(service.admin())
    topic = service.admin().describe_topic("orders.import").topic
    assert (topic.partitions, topic.config["retention_ms"]) == (1, -1)


def test_notes_are_those_of_one_source_from_an_offset_on() -> None:
    service = MemoryPenstock()
    progress = ProgressTopic(service.transport, "orders", "a")
    progress.create(service.admin())
    assert list(progress.notes(service.admin())) == []
    with service.producer() as producer:
        for number, key in enumerate((b"a", b"b", b"a", b"a")):
            producer.send("orders.import", b"%d" % number, key=key, partition=0)
    assert list(progress.notes(service.admin())) == [(0, b"0"), (2, b"2"), (3, b"3")]
    assert list(progress.notes(service.admin(), 1)) == [(2, b"2"), (3, b"3")]
    assert list(progress.notes(service.admin(), 4)) == []
