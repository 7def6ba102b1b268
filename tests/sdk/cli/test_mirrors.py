"""`penstock mirrors`, with two services in memory."""

from collections.abc import Iterator

import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json

URL = "https://b.example"
CREATE = ("mirrors", "create", "dr", "orders", "--to", URL, "--source", "https://a.example")


@pytest.fixture
def other(service: MemoryPenstock) -> Iterator[MemoryPenstock]:
    service.create_topic("orders", partitions=2)
    with MemoryPenstock() as found:
        service.add_stage(URL, found)
        yield found


def places_of(side: MemoryPenstock) -> list[tuple[int, int, bytes | None]]:
    return [(each.partition, each.offset, each.value) for each in side.records("orders")]


def test_topic_is_mirrored_and_promoted(service: MemoryPenstock, other: MemoryPenstock) -> None:
    made = run_json(service.transport, *CREATE)
    assert made["target"] == {"stage": {"url": URL, "source": "https://a.example"}}
    with service.producer() as producer:
        for number in range(20):
            producer.send("orders", value=str(number).encode(), key=str(number).encode())
    service.deliver_pushes()
    places = [
        [(each.partition, each.offset, each.value) for each in side.records("orders")] for side in (service, other)
    ]
    assert places[0] == places[1]
    assert len(places[0]) == 20
    described = run_json(service.transport, "mirrors", "describe", "dr")
    assert (described["lag"], len(described["partitions"])) == (0, 2)
    assert (
        "dr (active) mirrors orders to https://b.example" in run(service.transport, "mirrors", "describe", "dr").stdout
    )
    assert run_json(service.transport, "mirrors", "list")["pushes"][0]["name"] == "dr"
    [mirrored] = run_json(other.transport, "mirrors", "list")["mirrored"]
    assert mirrored == {
        "topic": "orders",
        "mirror": {
            "name": "dr",
            "topic_id": service.admin().describe_topic("orders").topic.topic_id,
            "source": "https://a.example",
        },
    }
    assert "takes" in run(other.transport, "mirrors", "list").stdout
    refused = run(other.transport, "topics", "delete", "orders", "--yes")
    assert refused.exit_code == 1
    assert "https://a.example" in refused.stderr
    promoted = run_json(other.transport, "mirrors", "promote", "orders", "--yes")
    assert sum(each["promoted_at"] for each in promoted["orders"]) == 20
    with other.producer() as producer:
        assert (
            producer.send("orders", value=b"own", partition=0).result().offset == promoted["orders"][0]["promoted_at"]
        )
    assert run(other.transport, "mirrors", "promote", "orders", "--yes").exit_code == 0, "a repeat"
    assert run_json(service.transport, "mirrors", "delete", "dr", "--yes") == {"deleted": "dr"}


def test_mirror_begins_anew(service: MemoryPenstock, other: MemoryPenstock) -> None:
    run_json(service.transport, *CREATE, "--prefix", "eu.")
    with service.producer() as producer:
        producer.send("orders", value=b"a", partition=0)
    service.deliver_pushes()
    before = other.admin().describe_topic("eu.orders").topic.topic_id
    assert run_json(other.transport, "mirrors", "resync", "eu.orders", "--yes") == {"resynced": "eu.orders"}
    assert run(other.transport, "mirrors", "resync", "eu.orders", "--yes").exit_code == 1
    run_json(service.transport, "subscriptions", "resume", "dr")
    service.deliver_pushes()
    assert [each.value for each in other.records("eu.orders")] == [b"a"]
    assert other.admin().describe_topic("eu.orders").topic.topic_id != before


def test_subscription_is_no_mirror(service: MemoryPenstock, other: MemoryPenstock) -> None:
    assert other.admin().list_topics() == []
    service.create_topic("copies")
    run_json(service.transport, "subscriptions", "create", "copying", "orders", "--topic", "copies")
    for command in (("describe",), ("delete", "--yes")):
        assert run(service.transport, "mirrors", command[0], "copying", *command[1:]).exit_code == 1
    assert run(service.transport, "mirrors", "promote", "orders", "--yes").exit_code == 1


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--to", "nonsense", "target.stage.url"),
        ("--role", "nobody", "target.stage.role"),
        ("--to-region", "somewhere", "target.stage.region"),
        ("--prefix", "a b", "a b"),
    ],
)
def test_bad_stage_is_refused(
    service: MemoryPenstock, other: MemoryPenstock, option: str, value: str, told: str
) -> None:
    assert other.admin().list_topics() == []
    arguments = ["mirrors", "create", "dr", "orders", "--to", URL, option, value]
    refused = run(service.transport, *arguments)
    assert refused.exit_code == 1
    assert told in refused.stderr
