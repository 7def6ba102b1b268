"""Delayed records over HTTP: in a frame, in JSON, listed, cancelled, and delivered by the function `promote`."""

from collections import Counter
from typing import Any

import pytest

from penstock_core.limits import JSON_RECORDS_MAX, TIMER_DELAY_MS_MAX, TIMER_SHARDS
from penstock_core.log.delivery import Delivery
from penstock_core.log.timer import FIRST_RUN, encode_due_second, second_of
from penstock_core.records import frame
from penstock_core.schedules.schedule import runs_of_second, starts_runs
from penstock_handlers import promote
from penstock_service.adapters.memory.messages import MemoryTimerTriggers
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.timers.promote import promote_second
from tests.handlers.service import Answer, Service
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    counted_instance,
    key_of,
    with_stores,
)

NO_SCHEDULES = dict.fromkeys(
    (
        *("schedules_delivered", "schedules_refused", "schedules_postponed", "schedules_failed"),
        *("schedules_late", "schedules_late_ms", "schedule_messages_sent"),
    ),
    0,
)
ID = "0123456789abcdef" * 2


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def delayed(clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setenv("PENSTOCK_BUDGET_MS", "45000")
    service = Service(memory_instance(clock=clock))
    service.create(partitions=2)
    return service


def produce(service: Service, data: bytes, **fields: object) -> Answer:
    named = {"topic": "orders", "partition": 0, "length": len(data), **fields}
    return service.call("POST", "/v1/produce", frame.encode({"batches": [named]}, [data]))


def values(service: Service, partition: int = 0) -> list[str]:
    return [record["value"] for record in service.read(partition=partition)["records"]]


def run(service: Service, event: dict[str, Any] | None = None) -> dict[str, int]:
    promotion, counts, failed = promote.serve(event or {}, service.instance)
    return {"timers": promotion.timers, "failed": len(failed), **counts}


def test_frame_with_a_due_time_is_delivered_then_and_not_before(delayed: Service, clock: SteppedClock) -> None:
    due_ms = clock.now_ms() + 5_000
    answer = produce(delayed, batch("a", "b"), deliver_at_ms=due_ms, timer_id=ID)
    assert answer.json == {"results": [{"topic": "orders", "partition": 0, "scheduled_id": f"0-{due_ms}-{ID}"}]}
    assert produce(delayed, batch("a", "b"), deliver_at_ms=due_ms, timer_id=ID).json == answer.json
    clock.time_ms += 4_999
    assert run(delayed)["timers"] == 0
    clock.time_ms += 1
    assert run(delayed) == {
        "timers": 1, "failed": 0, "partitions_due": 1, "messages_sent": 0, "minutes_forgotten": 0,
        "promotions_failed": 0, **NO_SCHEDULES,
    }  # fmt: skip
    assert values(delayed) == ["a", "b"]


@pytest.mark.parametrize(
    "fields",
    [
        {"deliver_at_ms": 5},
        {"timer_id": ID},
        {"deliver_at_ms": -1, "timer_id": ID},
        {"deliver_at_ms": 10**15, "timer_id": ID},
        {"deliver_at_ms": "5", "timer_id": ID},
        {"deliver_at_ms": 5, "timer_id": ID.upper()},
        {"deliver_at_ms": 5, "timer_id": 7},
    ],
)
def test_frame_with_a_wrong_timer_is_refused(delayed: Service, fields: dict[str, object]) -> None:
    assert produce(delayed, batch("a"), **fields).error["code"] == "INVALID_REQUEST"


def test_due_time_beyond_a_year_is_the_entrys_error(delayed: Service, clock: SteppedClock) -> None:
    due_ms = clock.now_ms() + TIMER_DELAY_MS_MAX + 1
    [result] = produce(delayed, batch("a"), deliver_at_ms=due_ms, timer_id=ID).json["results"]
    assert (result["error"]["code"], "365 days" in result["error"]["message"]) == ("INVALID_REQUEST", True)


def test_json_records_are_delayed_one_by_one(delayed: Service, clock: SteppedClock) -> None:
    now_ms = clock.now_ms()
    answers = delayed.send(
        {"value": "now", "partition": 0},
        {"value": "b", "partition": 0, "delay_ms": 2_000},
        {"value": "a", "partition": 0, "deliver_at_ms": now_ms + 1_000},
        {"value": "c", "partition": 0, "deliver_at_ms": now_ms + 2_000},
        {"value": "d", "partition": 0, "delay_ms": 2_000, "cancellable": True},
        {"value": "e", "partition": 1, "delay_ms": 0},
    )
    assert [answer.get("deliver_at_ms", answer.get("offset")) for answer in answers] == [
        0, now_ms + 2_000, now_ms + 1_000, now_ms + 2_000, now_ms + 2_000, now_ms,
    ]  # fmt: skip
    assert ["scheduled_id" in answer for answer in answers] == [False, False, False, False, True, False]
    listed = delayed.call("GET", "/v1/topics/orders/scheduled").json
    assert [(each["partition"], each["records"]) for each in listed["scheduled"]] == [(0, 1), (0, 2), (0, 1), (1, 1)]
    clock.time_ms += 2_000
    assert run(delayed)["timers"] == 4
    assert (values(delayed), values(delayed, 1)) == (["now", "a", "b", "c", "d"], ["e"])


@pytest.mark.parametrize(
    "record",
    [
        {"value": "a", "delay_ms": 1, "deliver_at_ms": 1},
        {"value": "a", "delay_ms": -1},
        {"value": "a", "delay_ms": TIMER_DELAY_MS_MAX + 1},
        {"value": "a", "deliver_at_ms": "soon"},
        {"value": "a", "cancellable": True},
    ],
)
def test_wrong_delay_in_json_is_refused(delayed: Service, record: dict[str, object]) -> None:
    answer = delayed.call("POST", "/v1/topics/orders/records", {"records": [record]})
    assert answer.error["code"] == "INVALID_REQUEST"


def test_more_due_times_than_one_request_may_have_are_refused(delayed: Service) -> None:
    records = [{"value": "a", "partition": 0, "delay_ms": number} for number in range(101)]
    assert len(records) < JSON_RECORDS_MAX
    answer = delayed.call("POST", "/v1/topics/orders/records", {"records": records})
    assert "101 batches" in answer.error["message"]


def test_cancelled_record_never_comes_and_the_answers_say_why(delayed: Service, clock: SteppedClock) -> None:
    answers = delayed.send(
        *({"value": str(n), "partition": 0, "delay_ms": 1_000, "cancellable": True} for n in range(3))
    )
    paths = [f"/v1/topics/orders/scheduled/{answer['scheduled_id']}" for answer in answers]
    for _ in range(2):
        cancelled = delayed.call("DELETE", paths[1])
        assert (cancelled.status, cancelled.json["records"]) == (200, 1)
    clock.time_ms += 1_000
    assert run(delayed)["timers"] == 2
    assert values(delayed) == ["0", "2"]
    assert delayed.call("DELETE", paths[0]).error["code"] == "TIMER_SETTLED"
    assert delayed.call("DELETE", paths[0][:-1] + "x").error["code"] == "INVALID_REQUEST"
    assert delayed.call("DELETE", f"/v1/topics/orders/scheduled/0-5-{ID}").error["code"] == "UNKNOWN_TIMER"
    assert delayed.call("DELETE", f"/v1/topics/orders/scheduled/7-5-{ID}").error["code"] == "UNKNOWN_PARTITION"
    assert delayed.call("DELETE", f"/v1/topics/none/scheduled/0-5-{ID}").error["code"] == "UNKNOWN_TOPIC"


def test_list_has_pages_and_can_name_a_partition(delayed: Service, clock: SteppedClock) -> None:
    for partition in (0, 1):
        delayed.send(*({"value": "a", "partition": partition, "delay_ms": 60_000 * n} for n in range(1, 6)))
    clock.time_ms += 90_000  # one of each partition is overdue
    whole = delayed.call("GET", "/v1/topics/orders/scheduled").json["scheduled"]
    assert len(whole) == 10
    assert whole == sorted(whole, key=lambda each: (each["partition"], each["deliver_at_ms"]))
    found, after = [], ""
    for _ in range(10):
        page = delayed.call("GET", "/v1/topics/orders/scheduled", limit="3", **({"after": after} if after else {})).json
        found += page["scheduled"]
        after = page["next_after"]
        if after is None:
            break
    assert found == whole
    only = delayed.call("GET", "/v1/topics/orders/scheduled", partition="1").json["scheduled"]
    assert only == whole[5:]
    assert delayed.call("GET", "/v1/topics/orders/scheduled", partition="2").error["code"] == "UNKNOWN_PARTITION"
    assert delayed.call("GET", "/v1/topics/orders/scheduled", after="x").error["code"] == "INVALID_REQUEST"
    assert delayed.call("GET", "/v1/topics/none/scheduled").error["code"] == "UNKNOWN_TOPIC"


def test_list_goes_on_behind_a_hundred_partitions(clock: SteppedClock) -> None:
    service = Service(memory_instance(clock=clock))
    service.create(partitions=150)
    service.send({"value": "a", "partition": 149, "delay_ms": 1_000})
    first = service.call("GET", "/v1/topics/orders/scheduled").json
    assert first == {"scheduled": [], "next_after": "100"}
    second = service.call("GET", "/v1/topics/orders/scheduled", after="100").json
    assert ([each["partition"] for each in second["scheduled"]], second["next_after"]) == ([149], None)


def test_messages_promote_their_second_and_failures_come_again(delayed: Service, clock: SteppedClock) -> None:
    due_ms = clock.now_ms()
    for partition in (0, 1):
        delayed.send({"value": "a", "partition": partition, "delay_ms": 0})
    keys = [key_of(delayed.instance, "orders", partition) for partition in (0, 1)]
    records = [
        {"messageId": str(number), "body": encode_due_second(second_of(due_ms, key))} for number, key in enumerate(keys)
    ]
    records.append({"messageId": "bad", "body": "{}"})

    def failing(original: Any, delivery: Delivery) -> object:
        if delivery.key == keys[1]:
            raise UNAVAILABLE
        return original(delivery)

    broken: Instance = with_stores(
        delayed.instance, timers=Intercepted(delayed.instance.stores.timers, promote=failing)
    )
    promotion, counts, failed = promote.serve({"Records": records}, broken)
    assert (promotion.timers, counts, failed) == (1, {"messages_taken": 3, "promotions_failed": 2}, ["1", "bad"])
    assert run(delayed, {"Records": records[:2]}) == {
        "timers": 1, "failed": 0, "messages_taken": 2, "promotions_failed": 0,
    }  # fmt: skip


def test_run_each_minute_opens_the_queue_and_goes_on_without(delayed: Service) -> None:
    delayed.send({"value": "a", "partition": 0, "delay_ms": 0})

    def failing(*_: Any) -> None:
        raise UNAVAILABLE

    triggers = Intercepted(delayed.instance.stores.timer_triggers, open_queue=failing)
    broken = Service(with_stores(delayed.instance, timer_triggers=triggers))
    assert run(broken)["timers"] == 1
    assert not delayed.instance.stores.timer_triggers.is_open  # type: ignore[attr-defined]
    run(delayed)
    assert delayed.instance.stores.timer_triggers.is_open  # type: ignore[attr-defined]


def test_messages_for_one_second_start_one_promotion(delayed: Service, clock: SteppedClock) -> None:
    delayed.send({"value": "a", "partition": 0, "delay_ms": 0})
    second = second_of(clock.now_ms(), key_of(delayed.instance, "orders"))
    counts: Counter[str] = Counter()
    records = [{"messageId": str(number), "body": encode_due_second(second)} for number in range(5)]
    promotion, told, failed = promote.serve({"Records": records}, counted_instance(delayed.instance, counts))
    assert (promotion.timers, told["messages_taken"], failed) == (1, 5, [])
    assert counts["timers.waiting"] == 2 * TIMER_SHARDS, "one look that finds it, and one that finds no more"


def test_first_run_of_a_stage_looks_each_second_until_its_time_is_up(delayed: Service, clock: SteppedClock) -> None:
    begun_ms = clock.now_ms()
    for number in range(3):
        delayed.send({"value": str(number), "partition": 0, "deliver_at_ms": begun_ms + 20_000 * number})
    done = run(delayed, FIRST_RUN)
    assert (done["timers"], done["promotions_failed"]) == (3, 0)
    assert values(delayed) == ["0", "1", "2"]
    assert clock.now_ms() == begun_ms + 45_000


def test_first_run_goes_on_after_a_failure(delayed: Service, clock: SteppedClock) -> None:
    delayed.send({"value": "a", "partition": 0, "delay_ms": 0})
    looks: list[int] = []

    def failing(original: Any, *arguments: Any) -> object:
        looks.append(1)
        if len(looks) == 1:
            raise UNAVAILABLE
        return original(*arguments)

    broken = with_stores(delayed.instance, timers=Intercepted(delayed.instance.stores.timers, due_minutes=failing))
    promotion, _, _ = promote.serve(FIRST_RUN, broken)
    assert (promotion.timers, promotion.late_ms) == (1, 1_000)


SCHEDULE = {"cron": "* * * * *", "topic": "orders", "record": {"key": "k", "value": "go"}}


def test_minute_and_message_run_schedules_once(delayed: Service, clock: SteppedClock) -> None:
    assert delayed.call("PUT", "/v1/schedules/each", SCHEDULE).status == 200
    due_ms = delayed.call("GET", "/v1/schedules/each").json["next_ms"]
    told = run(delayed)
    assert (told["schedules_delivered"], told["schedule_messages_sent"]) == (0, 1)  # the creation has sent the other
    body = encode_due_second(runs_of_second(due_ms))
    clock.time_ms = due_ms + 300
    message = {"Records": [{"messageId": "m", "body": body}, {"messageId": "n", "body": body}]}
    told = run(delayed, message)
    assert (told["schedules_delivered"], told["schedules_late_ms"], told["failed"]) == (1, 300, 0)
    assert run(delayed)["schedules_delivered"] == 0
    assert sorted(values(delayed, 0) + values(delayed, 1)) == ["go"]


def test_first_run_announces_each_second_once(delayed: Service) -> None:
    delayed.call("PUT", "/v1/schedules/each", SCHEDULE)
    runner = another_instance(delayed.instance)
    triggers = runner.stores.timer_triggers
    assert isinstance(triggers, MemoryTimerTriggers)
    triggers.seconds.clear()
    promote.serve(FIRST_RUN, runner)
    sent = [second for second, _ in triggers.seconds if starts_runs(second)]
    assert len(sent) == len(set(sent))
    assert 2 <= len(sent) <= 4


def test_message_of_a_run_that_fails_comes_again(delayed: Service, clock: SteppedClock) -> None:
    delayed.call("PUT", "/v1/schedules/each", SCHEDULE)
    due_ms = delayed.call("GET", "/v1/schedules/each").json["next_ms"]
    clock.time_ms = due_ms

    def fail(*_: object) -> None:
        raise UNAVAILABLE

    broken = with_stores(delayed.instance, schedules=Intercepted(delayed.instance.stores.schedules, due=fail))
    body = encode_due_second(runs_of_second(due_ms))
    assert promote.serve({"Records": [{"messageId": "m", "body": body}]}, broken)[2] == ["m"]
    _, counts, _ = promote.serve({}, broken)  # delayed records come all the same
    assert counts["schedules_postponed"] == 1


def test_release_before_passes_over_messages_of_schedules(delayed: Service, clock: SteppedClock) -> None:
    clock.time_ms += 60_000
    assert promote_second(delayed.instance, runs_of_second(clock.now_ms()), 10**12).timers == 0
