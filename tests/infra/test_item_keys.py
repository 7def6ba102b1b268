"""Each function reaches the items that its work needs: its calls are held against the conditions of its role.

The emulator does not check these conditions, so a grant that is too narrow would fail on AWS alone.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import pytest

from penstock.prove.rows.access import REACH_OF_ROLES
from penstock_cdk.service.functions import construct_name
from penstock_core.routes import ROUTE_BY_KEY
from penstock_handlers.upkeep import run_retention
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.adapters.tables.tables import InterposedTables, Tables
from penstock_service.audit.settle_audit import settle_audit
from penstock_service.instance.instance import Instance
from penstock_service.metrics.measure import MeasureWish, measure
from penstock_service.topics.create_topic import create_any_topic
from tests.handlers.route_samples import SAMPLES, Sample, as_ada, make_world
from tests.handlers.service import Service
from tests.infra.conftest import Resources, resources_of
from tests.infra.templates import as_list, name_of, policies_of_roles
from tests.support.service import SteppedClock

pytestmark = pytest.mark.synth
FOR_EVER_MS = 1e9
MONTH_MS = 31 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Call:
    """An action on items of a table, by their partition keys. A scan tells none. A query may only count its items."""

    action: str
    table: str
    keys: frozenset[str]
    counts: bool = False


def calls_of(operation: str, sent: Mapping[str, Any]) -> Iterator[Call]:
    """What a role needs for one operation: a transaction needs what its actions need."""
    if operation == "TransactWriteItems":
        for [(kind, action)] in (each.items() for each in sent["TransactItems"]):
            yield from calls_of("ConditionCheckItem" if kind == "ConditionCheck" else f"{kind}Item", action)
    elif operation == "BatchGetItem":
        for table, wanted in sent["RequestItems"].items():
            yield Call(operation, table, frozenset(key["pk"]["S"] for key in wanted["Keys"]))
    elif operation == "BatchWriteItem":
        for table, wanted in sent["RequestItems"].items():
            yield Call(operation, table, frozenset(each["DeleteRequest"]["Key"]["pk"]["S"] for each in wanted))
    elif operation == "Query":
        found = re.match(r"pk = (:\w+)", sent["KeyConditionExpression"])
        assert found, sent["KeyConditionExpression"]
        pk = sent["ExpressionAttributeValues"][found[1]]["S"]
        yield Call(operation, sent["TableName"], frozenset([pk]), sent.get("Select") == "COUNT")
    elif operation == "Scan":
        yield Call(operation, sent["TableName"], frozenset())
    else:
        key = sent["Item"] if operation == "PutItem" else sent["Key"]
        yield Call(operation, sent["TableName"], frozenset([key["pk"]["S"]]))


def allows(statement: Mapping[str, Any], call: Call) -> bool:
    """True if the statement allows the call, whatever attributes it names."""
    condition = statement.get("Condition", {})
    like, unlike = (
        condition.get(f"ForAllValues:String{word}", {}).get("dynamodb:LeadingKeys") for word in ("Like", "NotLike")
    )
    return (
        f"dynamodb:{call.action}" in as_list(statement["Action"])
        and f"<Tables{call.table.title()}>" in map(name_of, as_list(statement["Resource"]))
        and condition.get("StringEquals") in (None, {"dynamodb:Select": "COUNT"} if call.counts else None)
        and (bool(call.keys) or not (like or unlike))
        and all(like is None or any(fnmatchcase(key, pattern) for pattern in like) for key in call.keys)
        and not any(fnmatchcase(key, pattern) for pattern in unlike or () for key in call.keys)
    )


def refused(resources: Resources, function: str, calls: set[Call]) -> list[Call]:
    """The calls that the function's role does not allow."""
    statements = policies_of_roles(resources)[f"<Functions{construct_name(function)}Role>"]
    return [call for call in calls if not any(allows(each, call) for each in statements)]


class Recorded:
    """A service whose calls of the tables are noted in `calls`, and its clock."""

    def __init__(self) -> None:
        self.calls: set[Call] = set()
        self.clock = SteppedClock()
        tables = InterposedTables(Tables(self.clock.now_ms), self._note)
        self.service = Service(memory_instance(tables=tables, clock=self.clock))

    def _note(self, operation: str, sent: Mapping[str, Any], apply: Callable[[], Any]) -> Any:
        self.calls.update(calls_of(operation.title().replace("_", ""), sent))
        return apply()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_function_of_a_route_reaches_the_items_that_it_needs(
    template: Callable[[str], dict[str, Any]], sample: Sample
) -> None:
    stage = Recorded()
    prepared = make_world(stage.service)
    method, _, path = sample.route.partition(" ")
    stage.calls.clear()
    answer = as_ada(
        stage.service.instance,
        method,
        sample.filled(path, prepared.facts),
        sample.sent(prepared.facts),
        **sample.query,
    )
    assert answer.status < 300, answer.body
    assert stage.calls or sample.route == "GET /v1/wake-ups"
    assert refused(resources_of(template("prod")), ROUTE_BY_KEY[sample.route].function, stage.calls) == []


def _retain(instance: Instance) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_RETENTION_BUDGET_MS", "1000000000")
        patch.setenv("PENSTOCK_LOG_START_GRACE_MS", "3600000")
        assert run_retention(instance)["retention_failed"] == 0


def _measure(instance: Instance) -> None:
    measure(instance, MeasureWish(topics_max=2, consumers_max=9), budget_ms=FOR_EVER_MS)


def _audit(instance: Instance) -> None:
    assert settle_audit(instance, -1, budget_ms=FOR_EVER_MS).is_finished


@pytest.mark.parametrize(
    ("work", "stage"),
    [
        (_retain, "prod"),
        (_measure, "local"),  # it measures consumers, too
        (_audit, "prod"),
    ],
)
def test_function_without_a_route_reaches_the_items_that_it_needs(
    template: Callable[[str], dict[str, Any]], work: Callable[[Instance], None], stage: str
) -> None:
    recorded = Recorded()
    make_world(recorded.service)
    for gone in ("/v1/topics/shared", "/v1/share-groups/workers"):
        assert recorded.service.call("DELETE", gone).status == 204
    recorded.calls.clear()
    for _ in range(5):  # offsets are kept for 90 days
        work(recorded.service.instance)
        recorded.clock.sleep_ms(MONTH_MS)
    assert recorded.calls
    assert refused(resources_of(template(stage)), "upkeep", recorded.calls) == []


@pytest.mark.parametrize("function", ["admin", "upkeep"])
def test_first_topic_of_a_stage_can_be_made(template: Callable[[str], dict[str, Any]], function: str) -> None:
    stage = Recorded()
    create_any_topic(stage.service.instance, "orders", 1, {}, "" if function == "upkeep" else "ada")
    assert Call("PutItem", "topics", frozenset(["#cursors"])) in stage.calls
    assert refused(resources_of(template("prod")), function, stage.calls) == []


def test_call_beyond_its_role_is_found(template: Callable[[str], dict[str, Any]]) -> None:
    resources = resources_of(template("prod"))
    for function in ("groups", "transactions", "produce", "share", "deliver"):
        beyond = {
            Call("PutItem", "topics", frozenset(["#acls"])),
            Call("UpdateItem", "topics", frozenset(["#acls"])),
            Call("PutItem", "groups", frozenset(["#quotas"])),
            Call("GetItem", "topics", frozenset(["orders"])),
        }
        if function != "deliver":  # it needs the secrets of endpoints
            beyond.add(Call("Query", "groups", frozenset(["#subscriptions"])))
            beyond.add(Call("GetItem", "groups", frozenset(["#subscriptions"])))
        assert set(refused(resources, function, beyond)) == {each for each in beyond if each.keys != {"orders"}}


@pytest.mark.parametrize(("function", "action", "key", "is_allowed"), REACH_OF_ROLES)
def test_prove_expects_of_roles_what_the_template_allows(
    template: Callable[[str], dict[str, Any]], function: str, action: str, key: str, is_allowed: bool
) -> None:
    """IAM's simulator is told the key and nothing else, so no other condition may decide."""
    call = Call(action.removeprefix("dynamodb:"), "groups", frozenset([key]))
    resources = resources_of(template("prod"))
    assert (refused(resources, function, {call}) == []) is is_allowed
    statements = policies_of_roles(resources)[f"<Functions{construct_name(function)}Role>"]
    told = {
        name
        for each in statements
        if allows(each, call)
        for keys in each.get("Condition", {}).values()
        for name in keys
    }
    assert told <= {"dynamodb:LeadingKeys"}
