"""`penstock dead-letters`: list, show, purge, and the pace of a redrive."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock import DeadLetters
from penstock.cli.dead_letters import CALL_RECORDS_MAX, Pace
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json
from tests.sdk.http.faulty_transport import FaultyTransport, answer, lost_answer
from tests.support.deadlines import until

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:pack"


@pytest.fixture(autouse=True)
def dead(service: MemoryPenstock) -> None:
    for name in ("orders", "orders.dead"):
        service.create_topic(name)
    with service.producer() as producer:
        for value in (b"one", b"two"):
            producer.send("orders", value)
    with (
        service.consumer("orders", group_id="billing", enable_auto_commit=False) as consumer,
        service.producer(transactional_id="billing-dead") as producer,
    ):
        letters = DeadLetters(consumer, producer, "orders.dead")
        for _ in range(2):
            record = next(consumer)
            letters.move(record, f"bad: {(record.value or b'').decode()}")


def test_list_shows_the_newest_records_and_why_they_are_there(service: MemoryPenstock) -> None:
    found = run_json(service.transport, "dead-letters", "list", "orders.dead")
    assert [(each["offset"], each["death"]["offset"], each["death"]["reason"]) for each in found] == [
        (1, 1, "bad: two"),
        (0, 0, "bad: one"),
    ]
    assert len(run_json(service.transport, "dead-letters", "list", "orders.dead", "--last", "1")) == 1
    assert "bad: two" in run(service.transport, "dead-letters", "list", "orders.dead").stdout


def test_list_leaves_out_records_that_are_no_letters(service: MemoryPenstock) -> None:
    with service.producer() as producer:
        producer.send("orders.dead", b"by hand").result()
    shown = run(service.transport, "dead-letters", "list", "orders.dead").stdout
    assert "of the newest 100 records, 1 of them no letters" in shown
    assert len(run_json(service.transport, "dead-letters", "list", "orders.dead")) == 2


def test_list_without_a_topic_shows_the_topics_of_share_groups_and_subscriptions(service: MemoryPenstock) -> None:
    for name in ("pushed.dead", "gone.dead"):
        service.create_topic(name)
    service.create_share_group("workers", "orders", {"dead_letter_topic": "orders.dead"})
    for name, topic in (("packing", "orders.dead"), ("billing", "pushed.dead"), ("mailing", "gone.dead")):
        service.admin().put_subscription(name, "orders", {"lambda": ARN}, {"dead_letter_topic": topic})
    service.admin().put_subscription("counting", "orders", {"lambda": ARN})
    service.admin().delete_topic("gone.dead")
    assert run_json(service.transport, "dead-letters", "list") == [
        {"topic": "gone.dead", "groups": [], "subscriptions": ["mailing"], **counts(None, None)},
        {"topic": "orders.dead", "groups": ["workers"], "subscriptions": ["packing"], **counts(2, 0)},
        {"topic": "pushed.dead", "groups": [], "subscriptions": ["billing"], **counts(0, 0)},
    ]
    shown = run(service.transport, "dead-letters", "list").stdout
    assert all(name in shown for name in ("mailing", "packing", "billing"))


def test_letters_are_open_until_they_are_moved_or_dropped(service: MemoryPenstock) -> None:
    moved = run_json(service.transport, "dead-letters", "redrive", "orders.dead", "--record", "0", "1")
    assert (moved["moved"], moved["remaining"]) == (1, 1)
    found = run_json(service.transport, "dead-letters", "list", "orders.dead")
    assert [(each["offset"], each["open"]) for each in found] == [(0, True)]
    found = run_json(service.transport, "dead-letters", "list", "orders.dead", "--all")
    assert [(each["offset"], each["open"]) for each in found] == [(1, False), (0, True)]
    assert run(service.transport, "dead-letters", "drop", "orders.dead", stdin=b"n\n").exit_code == 1
    dropped = run_json(service.transport, "dead-letters", "drop", "orders.dead", "--yes")
    assert dropped == {"dropped": 1, "remaining": 0}
    shown = run(service.transport, "dead-letters", "list", "orders.dead").stdout
    assert shown.startswith("orders.dead: 0 open, 2 done")
    assert run_json(service.transport, "dead-letters", "redrive", "orders.dead")["moved"] == 0


def counts(records: int | None, done: int | None) -> dict[str, int | None]:
    is_open = None if records is None or done is None else records - done
    return {"records": records, "open": is_open, "done": done}


def test_show_prints_one_record(service: MemoryPenstock) -> None:
    found = run_json(service.transport, "dead-letters", "show", "orders.dead", "0", "1")
    assert found["record"]["value"] == "two"
    assert found["death"]["group"] == "billing"
    assert "bad: one" in run(service.transport, "dead-letters", "show", "orders.dead", "0", "0").stdout


@pytest.mark.parametrize("place", [("0", "2"), ("1", "0")])
def test_show_refuses_a_place_without_a_record(service: MemoryPenstock, place: tuple[str, str]) -> None:
    result = run(service.transport, "dead-letters", "show", "orders.dead", *place)
    assert result.exit_code == 1


def test_purge_removes_all_records_when_you_agree(service: MemoryPenstock) -> None:
    assert run(service.transport, "dead-letters", "purge", "orders.dead", stdin=b"n\n").exit_code == 1
    assert len(service.records("orders.dead")) == 2
    done = run_json(service.transport, "dead-letters", "purge", "orders.dead", "--yes")
    assert done == {"topic": "orders.dead", "purged": 2}
    assert service.records("orders.dead") == []


REDRIVE = "/v1/topics/orders.dead/redrive"


def test_redrive_sends_records_back_to_where_they_came_from(service: MemoryPenstock) -> None:
    done = run_json(service.transport, "dead-letters", "redrive", "orders.dead")
    assert done == {"moved": 2, "skipped": 0, "remaining": 0, "skipped_by": {}}
    back = service.records("orders")[2:]
    assert [(each.value, each.headers) for each in back] == [(b"one", ()), (b"two", ())]
    assert run_json(service.transport, "dead-letters", "redrive", "orders.dead")["moved"] == 0


def test_letter_of_a_subscription_is_shown_sent_back_and_purged(service: MemoryPenstock) -> None:
    """The function refuses the poison, until it is mended."""
    handled, refused = list[bytes](), {b"poison"}
    _push(service, handled, refused)
    with service.producer() as producer:
        for value in (b"good", b"poison", b"fine"):
            producer.send("pushed", value)
    _deliver_until(service, lambda: handled == [b"good", b"fine"])
    [letter] = run_json(service.transport, "dead-letters", "list", "pushed.dead")
    death = letter["death"]
    assert (death["topic"], death["offset"], death["subscription"], death["group"]) == ("pushed", 1, "packing", "")
    assert "packing" in run(service.transport, "dead-letters", "list", "pushed.dead").stdout
    shown = run(service.transport, "dead-letters", "show", "pushed.dead", "0", "0")
    assert "pushed[0] offset 1, subscription packing" in shown.output
    assert "ValueError: poison" in shown.output

    refused.clear()
    done = run_json(service.transport, "dead-letters", "redrive", "pushed.dead")
    assert done == {"moved": 1, "skipped": 0, "remaining": 0, "skipped_by": {}}
    assert [(each.value, each.headers) for each in service.records("pushed")[3:]] == [(b"poison", ())]
    _deliver_until(service, lambda: handled == [b"good", b"fine", b"poison"])
    assert run_json(service.transport, "dead-letters", "purge", "pushed.dead", "--yes")["purged"] == 1
    assert service.records("pushed.dead") == []


def _deliver_until(service: MemoryPenstock, is_done: Callable[[], bool]) -> None:
    """A pause of a second lies between the attempts at the poison."""

    def look() -> bool:
        service.deliver_pushes()
        return is_done()

    until(look)


def _push(service: MemoryPenstock, handled: list[bytes], refused: set[bytes]) -> None:
    """A subscription of the topic `pushed`, of single records. Its function notes what it handles."""

    def pack(event: dict[str, Any], _context: None) -> None:
        [record] = event["records"]["pushed-0"]
        value = base64.b64decode(record["value"])
        if value in refused:
            raise ValueError(value.decode())
        handled.append(value)

    for name in ("pushed", "pushed.dead"):
        service.create_topic(name)
    service.add_function(ARN, pack)
    config = {"dead_letter_topic": "pushed.dead", "batch_records": 1, "retry": {"attempts_max": 1, "patience_ms": 0}}
    service.admin().put_subscription("packing", "pushed", {"lambda": ARN}, config)


def test_redrive_moves_what_matches_to_another_topic_and_leaves_the_rest(service: MemoryPenstock) -> None:
    service.create_topic("elsewhere")
    policy = json.dumps({"penstock.dead-letter.reason": ["bad: two"]})
    arguments = ("dead-letters", "redrive", "orders.dead", "--to", "elsewhere", "--filter", policy)
    done = run_json(service.transport, *arguments)
    assert (done["moved"], done["remaining"]) == (1, 1)
    assert [each.value for each in service.records("elsewhere")] == [b"two"]
    assert "moved 0 records; 1 remain: 1 did not match\n" in run(service.transport, *arguments).stdout


def test_redrive_whose_answers_are_lost_moves_each_record_once(service: MemoryPenstock) -> None:
    faulty = FaultyTransport(service.transport)
    faulty.faults[REDRIVE] = [lost_answer, lost_answer]
    done = run_json(faulty, "dead-letters", "redrive", "orders.dead", "--records-max", "1")
    assert done["remaining"] == 0  # two calls were applied, and their answers were lost
    assert sorted(each.value or b"" for each in service.records("orders")[2:]) == [b"one", b"two"]


def test_redrive_walks_to_the_end_and_tells_why_records_remain(service: MemoryPenstock) -> None:
    faulty = FaultyTransport(service.transport)
    answers = [
        {"moved": 500, "remaining": 40, "skipped": 9, "skipped_by": {"not_matching": 9}, "cursor": "0-509"},
        {"moved": 0, "remaining": 40, "skipped": 21, "skipped_by": {"not_matching": 21}, "cursor": "1-7"},
        {"moved": 10, "remaining": 31, "skipped": 1, "skipped_by": {"unreadable": 1}, "cursor": None},
    ]
    faulty.faults[REDRIVE] = [answer(200, json.dumps(each).encode()) for each in answers]
    assert "moved 510 records; 31 remain: 30 did not match, 1 cannot be read now\n" in (
        run(faulty, "dead-letters", "redrive", "orders.dead").stdout
    )
    bodies = [json.loads(body) for _, _, body in faulty.calls]
    assert bodies[0] == {"to": None, "filter": None, "records_max": CALL_RECORDS_MAX, "cursor": None}
    assert [each["cursor"] for each in bodies] == [None, "0-509", "1-7"]


def test_redrive_stops_at_the_records_that_were_asked_for(service: MemoryPenstock) -> None:
    faulty = FaultyTransport(service.transport)
    asked: list[int] = []

    def redriven(_: object) -> Response:
        asked.append(json.loads(faulty.calls[-1][2])["records_max"])
        return Response(
            200, {}, json.dumps({"moved": asked[-1], "remaining": 900, "skipped": 0, "cursor": "0-9"}).encode()
        )

    faulty.faults[REDRIVE] = [redriven] * 3
    done = run_json(faulty, "dead-letters", "redrive", "orders.dead", "--records-max", "700")
    assert done == {"moved": 700, "skipped": 0, "remaining": 900, "skipped_by": {}}
    assert asked == [500, 200]


def test_pace_waits_for_the_rate() -> None:
    pace = Pace(10, None)
    assert pace.next_call(0) == 10
    assert 900 <= pace.pause_ms(10) <= 1_000
    assert Pace(None, 600).next_call(500) == 100
    assert Pace(None, None).pause_ms(10_000) == 0
