"""Each route, in JSON and in binary, for callers with exactly its rights, without each of them, and with it denied."""

from dataclasses import fields, replace
from typing import Any

import pytest

from penstock_core.acls.rule import Kind, Operation, Right, parse_name_pattern, parse_rule
from penstock_core.acls.tokens import AclSettings
from penstock_core.records import frame
from penstock_core.routes import ROUTE_BY_KEY, ROUTES, Route, Where
from penstock_handlers.router import LOCAL_PRINCIPAL
from penstock_service.acls.change_acls import change_acls
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.stores import Stores
from tests.handlers.route_samples import (
    ADA_ROLE,
    EITHER,
    RECORDS_TELL_THE_TOPICS,
    REFUSED,
    SAMPLES,
    Sample,
    as_ada,
    is_refused,
    is_served,
    world,
)
from tests.handlers.service import Service
from tests.support.service import Intercepted, batch, with_stores


class _Untouched:
    """A store that no call may reach."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was called without the right")


def test_every_route_has_a_sample() -> None:
    assert ROUTE_BY_KEY.keys() == {sample.route for sample in SAMPLES}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.key)
def test_samples_need_what_the_route_declares(route: Route) -> None:
    declared = {(need.where, need.operation, need.kind) for need in route.needs}
    sampled = {
        (each.where, each.right.operation, each.right.kind)
        for sample in SAMPLES
        if sample.route == route.key
        for each in sample.needed
    }
    assert sampled - declared <= {(Where.BODY, *each[1:]) for each in declared}
    assert declared <= sampled


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_caller_with_exactly_the_rightsis_served(sample: Sample) -> None:
    prepared = world()
    prepared.grant(*(each.right for each in sample.needed))
    answer = prepared.call(sample)
    assert is_served(answer, sample.needed), (answer.status, answer.body)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_caller_without_one_of_the_rightsis_refused(sample: Sample) -> None:
    for missing in sample.needed:
        prepared = world()
        prepared.grant(*(each.right for each in sample.needed if each is not missing))
        answer = prepared.call(sample)
        assert is_refused(answer, missing), (missing, answer.status, answer.body)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_caller_with_one_of_the_rights_deniedis_refused(sample: Sample) -> None:
    for denied in sample.needed:
        prepared = world()
        prepared.grant(*(each.right for each in sample.needed), denied=denied.right)
        answer = prepared.call(sample)
        assert is_refused(answer, denied), (denied, answer.status, answer.body)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_refused_call_reaches_no_store(sample: Sample) -> None:
    """Before any work: a caller without any right, on an instance that knows the rules."""
    route = ROUTE_BY_KEY[sample.route]
    is_noted = bool(route.audit)  # the note of a change comes before the handler, and is dropped again
    checked = {Where.PATH, *EITHER} if is_noted else {*Where} - {Where.SHOWN}
    if route.audit == "create_topic":
        checked.add(Where.BODY)
    if not any(each.where in checked for each in sample.needed):
        return
    prepared = world()
    assert as_ada(prepared.instance, "GET", "/v1/wake-ups").status == 200
    untouchable: dict[str, Any] = {each.name: _Untouched() for each in fields(Stores)}
    untouched = Stores(**untouchable)
    caches: dict[str, Any] = {
        name: _Untouched()
        for name in ("topic_cache", "group_cache", "share_group_cache", "zone_cache", "zone_latency", "zone_health")
    }
    prepared.instance = replace(prepared.instance, stores=untouched, **caches)
    answer = prepared.call(sample)
    assert REFUSED in answer.body, (answer.status, answer.body)


@pytest.mark.parametrize(
    "sample",
    [each for each in SAMPLES if ROUTE_BY_KEY[each.route].audit and each.note != RECORDS_TELL_THE_TOPICS],
    ids=lambda sample: sample.name,
)
def test_change_without_one_of_its_rights_writes_no_note(sample: Sample) -> None:
    for missing in sample.needed:
        prepared = world()
        prepared.grant(*(each.right for each in sample.needed if each is not missing))
        untouched = Intercepted(prepared.instance.stores.audit, put=_refuse_note)
        prepared.instance = with_stores(prepared.instance, audit=untouched)
        answer = prepared.call(sample)
        assert is_refused(answer, missing), (missing, answer.status, answer.body)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_refusal_does_not_tell_whether_the_topic_exists(sample: Sample) -> None:
    answers = set()
    for has_topics in (True, False):
        prepared = world()
        if not has_topics:
            for topic in prepared.instance.stores.topics.list():
                prepared.instance.stores.topics.delete(topic, 0)
        answer = prepared.call(sample)
        if any(each.right.kind.value == "topic" and each.shown is None for each in sample.needed):
            answers.add((answer.status, answer.body))
    assert len(answers) < 2, answers


def test_caller_of_an_unknown_name_is_refused_before_it_is_told_so() -> None:
    answer = as_ada(world().instance, "GET", "/v1/topics/missing")
    assert (answer.status, answer.json["error"]["code"]) == (403, "NOT_AUTHORIZED")
    assert answer.json["error"]["resource"] == "topic:missing"


def test_member_gets_no_partition_that_its_pattern_matches_and_it_may_not_read() -> None:
    prepared = world()
    prepared.grant(*(_right(text) for text in ("read group:g", "read topic:orders")))
    subscribed = {"topics": [], "patterns": ["*"]}
    join = {"member_id": "m", "sequence": 1, "epoch": 0, "subscription": subscribed}
    told = as_ada(prepared.instance, "POST", "/v1/groups/g/heartbeat", join).json
    assert {each["topic"] for each in told["granted"]} == {"orders"}
    assert (told["waiting"], told["is_complete"]) == (0, True)


@pytest.mark.parametrize(
    ("path", "right", "field"),
    [
        ("/v1/topics", "describe topic:z", "topics"),
        ("/v1/groups", "describe group:z", "groups"),
        ("/v1/share-groups", "describe share_group:z", "share_groups"),
        ("/v1/subscriptions", "describe subscription:z", "subscriptions"),
    ],
)
def test_page_tells_no_name_that_the_caller_may_not_describe(path: str, right: str, field: str) -> None:
    """The `after` of the next page is a name, too."""
    prepared = world()
    opened = Service(prepared.instance)
    change_acls(prepared.instance, [parse_rule(LOCAL_PRINCIPAL, "all", "*")], [])
    opened.create("z")
    commit = {"offsets": [{"topic": "z", "partition": 0, "offset": 0}]}
    assert opened.call("POST", "/v1/groups/z/offsets", commit).status == 200
    assert opened.call("PUT", "/v1/share-groups/z", {"topics": ["z"]}).status == 200
    wanted = {"topics": ["z"], "target": {"topic": "mirror"}}
    assert opened.call("PUT", "/v1/subscriptions/z", wanted).status == 200
    prepared.grant(_right(right))
    answer = as_ada(prepared.instance, "GET", path, limit="1")
    assert (len(answer.json[field]), answer.json["next_after"]) == (1, None)
    prepared.grant(_right(right.replace(":z", ":y")))
    assert as_ada(prepared.instance, "GET", path, limit="1").json[field] != []


def test_acquire_without_topics_takes_records_of_those_that_the_caller_may_read() -> None:
    prepared = world()
    opened = Service(prepared.instance)
    prepared.grant(*(_right(text) for text in ("alter share_group:workers", "read topic:*")))
    put = as_ada(prepared.instance, "PUT", "/v1/share-groups/workers", {"topics": ["shared", "orders"]})
    assert put.status == 200, put.body
    change_acls(opened.instance, [parse_rule(ADA_ROLE, "read", "share_group:workers")], [])
    change_acls(opened.instance, [parse_rule(ADA_ROLE, "read", "topic:shared", "deny")], [])
    path = "/v1/share-groups/workers/records"
    found = as_ada(prepared.instance, "POST", path, {"max_records": 9}).json["records"]
    assert {each["topic"] for each in found} == {"orders"}


def test_caller_who_may_not_read_the_topics_of_a_subscription_may_not_send_them_elsewhere() -> None:
    prepared = world()
    prepared.grant(*(_right(text) for text in ("alter subscription:packing", "write topic:mirror")))
    change = {"target": {"topic": "mirror"}}
    answer = as_ada(prepared.instance, "PUT", "/v1/subscriptions/packing", change)
    assert (answer.status, answer.json["error"]["resource"]) == (403, "topic:orders")


def test_partitions_of_one_request_fail_alone() -> None:
    prepared = world()
    prepared.grant(_right("write topic:out"))
    data = batch("a")
    named = [{"topic": topic, "partition": 0, "length": len(data)} for topic in ("orders", "out", "missing")]
    answer = as_ada(prepared.instance, "POST", "/v1/produce", frame.encode({"batches": named}, [data] * 3))
    codes = [each.get("error", {}).get("code") for each in answer.json["results"]]
    assert codes == ["NOT_AUTHORIZED", None, "NOT_AUTHORIZED"]


def test_fetch_with_a_refused_partition_does_not_wait_for_the_others() -> None:
    prepared = world()
    prepared.grant(_right("read topic:out"))
    wanted = [{"topic": topic, "partition": 0, "offset": 0} for topic in ("out", "orders")]
    body = {"partitions": wanted, "wait_ms": 20_000}
    clock = prepared.instance.clock
    begun_ms = clock.monotonic_ms()
    answer = as_ada(prepared.instance, "POST", "/v1/fetch", body)
    partitions: Any = frame.decode(answer.body)[0]["partitions"]
    assert [each.get("error", {}).get("code") for each in partitions] == [None, "NOT_AUTHORIZED"]
    assert clock.monotonic_ms() - begun_ms < 20_000


def test_stage_that_allows_by_default_refuses_what_a_rule_denies() -> None:
    service = Service()
    service.create("orders")
    assert as_ada(service.instance, "GET", "/v1/topics/orders").status == 200
    change_acls(service.instance, [parse_rule(ADA_ROLE, "describe", "topic:orders", "deny")], [])
    assert as_ada(service.instance, "GET", "/v1/topics/orders").status == 403
    assert service.call("GET", "/v1/topics/orders").status == 200


def test_super_principal_makes_the_first_rules() -> None:
    settings = AclSettings(allows_by_default=False, super_principals=(parse_name_pattern(ADA_ROLE),))
    instance = memory_instance(acl_settings=settings)
    added = as_ada(instance, "POST", "/v1/acls", {"add": [{"principal": "*", "operation": "all", "resource": "*"}]})
    assert added.status == 200
    assert Service(instance).call("GET", "/v1/zones").status == 200


def _refuse_note(*_arguments: object) -> None:
    raise AssertionError("a note was written without the right")


def _right(text: str) -> Right:
    operation, _, resource = text.partition(" ")
    kind, _, name = resource.partition(":")
    return Right(operation=Operation(operation), kind=Kind(kind), name=name)
