"""GetItem, BatchGetItem, Query and Scan. Pages are of https://docs.aws.amazon.com/amazondynamodb/latest/."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock_core.storage.item import item_bytes
from tests.service.adapters.tables.calls import KEY, LOG, Stage, key, number, refused, sorts, text


def test_an_item_that_is_not_there_has_no_answer(stage: Stage) -> None:
    """APIReference/API_GetItem.html: If there is no matching item, GetItem does not return any data."""
    assert stage.tables.get_item(TableName=LOG, Key=KEY) == {}


def test_a_read_returns_the_attributes_that_it_names(stage: Stage) -> None:
    """developerguide/Expressions.ProjectionExpressions.html."""
    stage.put({"a": number(1), "status": number(2), "c": number(3)})
    assert stage.get(ProjectionExpression="a, #s, nothing", ExpressionAttributeNames={"#s": "status"}) == {
        "a": number(1),
        "status": number(2),
    }
    [item] = stage.query(ProjectionExpression="sk")["Items"]
    assert item == {"sk": text("s")}
    refused(lambda: stage.get(ProjectionExpression="a, a"), "overlap")
    with pytest.raises(NotImplementedError):
        stage.get(ProjectionExpression="a.b")


@pytest.fixture
def six(stage: Stage) -> Stage:
    """Items a to f, each with its number, and one of another partition."""
    for place, sort in enumerate("fbdcae"):
        stage.put({"n": number(place)}, sort)
    stage.tables.put_item(TableName=LOG, Item=key("a", "other"))
    return stage


@pytest.mark.parametrize(
    ("condition", "values", "found"),
    [
        ("pk = :p", {}, "abcdef"),
        ("pk = :p AND sk = :c", {":c": text("c")}, "c"),
        ("sk = :c AND pk = :p", {":c": text("c")}, "c"),
        ("pk = :p AND sk < :c", {":c": text("c")}, "ab"),
        ("pk = :p AND sk <= :c", {":c": text("c")}, "abc"),
        ("pk = :p AND sk > :c", {":c": text("c")}, "def"),
        ("pk = :p AND sk >= :c", {":c": text("c")}, "cdef"),
        ("pk = :p AND sk BETWEEN :b AND :d", {":b": text("b"), ":d": text("d")}, "bcd"),
        ("pk = :p AND sk BETWEEN :b AND :d", {":b": text("bb"), ":d": text("cc")}, "c"),
        ("pk = :p AND begins_with(sk, :d)", {":d": text("d")}, "d"),
        ("pk = :p AND begins_with(sk, :d)", {":d": text("g")}, ""),
    ],
)
def test_query_finds_a_range_of_sort_keys_in_order(
    six: Stage, condition: str, values: dict[str, Any], found: str
) -> None:
    """developerguide/Query.KeyConditionExpressions.html; results are always sorted by the sort key value."""
    answer = six.query(condition, values=values)
    assert "".join(sorts(answer)) == found
    assert (answer["Count"], answer["ScannedCount"]) == (len(found), len(found))
    assert "LastEvaluatedKey" not in answer
    assert "".join(sorts(six.query(condition, values=values, ScanIndexForward=False))) == found[::-1]


def test_prefixes_find_texts_beyond_ascii(stage: Stage) -> None:
    """developerguide/Query.KeyConditionExpressions.html, begins_with."""
    for sort in ("é", "éa", "é\U0010ffff", "ê", "e"):
        stage.put(sort=sort)
    found = stage.query("pk = :p AND begins_with(sk, :e)", values={":e": text("é")})
    assert sorts(found) == ["é", "éa", "é\U0010ffff"]


@pytest.mark.parametrize(
    ("condition", "values", "why"),
    [
        ("pk > :p", {}, "not supported"),
        ("sk = :p", {}, "missed key schema element: pk"),
        ("pk = :p AND n = :n", {":n": number(1)}, "not supported"),
        ("pk = :p AND pk = :n", {":n": text("q")}, "not supported"),
        ("pk = :p AND sk > :n AND sk < :m", {":n": text("a"), ":m": text("b")}, "length 1 or 2"),
        ("pk = :p OR sk = :n", {":n": text("a")}, "Syntax error"),
        ("pk = :p AND NOT sk = :n", {":n": text("a")}, "Syntax error|reserved"),
        ("pk = :p AND sk <> :n", {":n": text("a")}, "Invalid operator"),
        ("pk = :p AND sk IN (:n)", {":n": text("a")}, "Invalid operator"),
        ("pk = :p AND contains(sk, :n)", {":n": text("a")}, "begins_with alone"),
        ("pk = :p AND sk.a = :n", {":n": text("a")}, "nested attributes"),
        ("pk = :p AND sk = :n", {":n": number(1)}, "does not match schema type"),
        ("pk = :p AND sk = :n", {":n": text("")}, "empty string value. Key: sk"),
        ("pk = :p AND sk BETWEEN :n AND :m", {":n": text("b"), ":m": text("a")}, "upper bound"),
        ("", {}, "can not be empty"),
    ],
)
def test_wrong_conditions_on_keys_are_refused(six: Stage, condition: str, values: dict[str, Any], why: str) -> None:
    """developerguide/Query.KeyConditionExpressions.html: the partition key by equality, one sort key test."""
    refused(lambda: six.query(condition, values=values), why)


def test_a_query_needs_a_condition_on_keys(stage: Stage) -> None:
    """APIReference/API_Query.html."""
    refused(lambda: stage.tables.query(TableName=LOG), "KeyConditionExpression parameter must be specified")


def pages(stage: Stage, **more: Any) -> Iterator[list[str]]:
    start: dict[str, Any] = {}
    while True:
        answer = stage.query(**more, **start)
        yield sorts(answer)
        if "LastEvaluatedKey" not in answer:
            return
        start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}


def test_limit_cuts_pages(six: Stage) -> None:
    """developerguide/Query.Pagination.html: a query is at its end when there is no LastEvaluatedKey."""
    assert [*pages(six, Limit=4)] == [["a", "b", "c", "d"], ["e", "f"]]
    assert [*pages(six, Limit=3)] == [["a", "b", "c"], ["d", "e", "f"], []]
    assert [*pages(six, Limit=4, ScanIndexForward=False)] == [["f", "e", "d", "c"], ["b", "a"]]
    assert [*pages(six, condition="pk = :p AND sk > :b", values={":b": text("b")}, Limit=3)] == [["c", "d", "e"], ["f"]]
    refused(lambda: six.query(Limit=0), "greater than or equal to 1")


def test_a_query_that_counts_answers_no_item(six: Stage) -> None:
    """APIReference/API_Query.html, Select: COUNT returns the number of matching items, rather than the items."""
    assert six.query(Select="COUNT") == {"Count": 6, "ScannedCount": 6}
    assert six.query(Select="COUNT", Limit=1) == {"Count": 1, "ScannedCount": 1, "LastEvaluatedKey": key("a")}


def test_a_filter_counts_what_it_leaves_out(six: Stage) -> None:
    """developerguide/Query.FilterExpression.html: it is applied to what a query has read."""
    asked: dict[str, Any] = {"FilterExpression": "n > :three", "values": {":three": number(3)}}
    answer = six.query(**asked, Limit=4)
    assert (sorts(answer), answer["Count"], answer["ScannedCount"]) == (["a"], 1, 4)
    assert answer["LastEvaluatedKey"] == key("d")
    assert [*pages(six, **asked, Limit=4)] == [["a"], ["e"]]


def test_a_filter_of_a_query_names_no_key(six: Stage) -> None:
    """developerguide/Query.FilterExpression.html: A filter expression cannot contain partition key or sort key."""
    refused(lambda: six.query(FilterExpression="sk > :a", values={":a": text("a")}), "non-primary key attributes.*sk")


def test_a_page_has_a_megabyte(stage: Stage) -> None:
    """developerguide/Query.Pagination.html: pages of 1 MB or less."""
    empty = item_bytes({**key("0"), "a": {"B": b""}})
    for sort in "0123456":
        stage.put({"a": {"B": bytes(2**18 - empty)}}, sort)
    assert [*pages(stage)] == [["0", "1", "2", "3"], ["4", "5", "6"]]
    stage.put({"a": {"B": bytes(2**18 - empty + 1)}}, "0")
    assert [*pages(stage)] == [["0", "1", "2"], ["3", "4", "5", "6"]]
    assert [*pages(stage, ProjectionExpression="sk")] == [["0", "1", "2"], ["3", "4", "5", "6"]]


@pytest.mark.parametrize("start", [key("a", "other"), key("a"), {"pk": text("p")}, {**key("c"), "n": number(1)}])
def test_a_start_key_lies_within_the_query(six: Stage, start: Any) -> None:
    """APIReference/API_Query.html, ExclusiveStartKey: Use the value that was returned for LastEvaluatedKey."""
    refused(lambda: six.query("pk = :p AND sk > :b", values={":b": text("b")}, ExclusiveStartKey=start))


def test_a_query_goes_on_behind_a_key_that_is_gone(six: Stage) -> None:
    """developerguide/Query.Pagination.html."""
    six.tables.delete_item(TableName=LOG, Key=key("c"))
    assert sorts(six.query(ExclusiveStartKey=key("c"))) == ["d", "e", "f"]
    assert sorts(six.query(ExclusiveStartKey=key("c"), ScanIndexForward=False)) == ["b", "a"]


def test_a_scan_finds_all_items_page_by_page(stage: Stage) -> None:
    """developerguide/Scan.html: reads every item in a table, in no order of partition keys."""
    places = {(f"p{each % 5}", f"s{each}") for each in range(23)}
    for partition, sort in places:
        stage.tables.put_item(TableName=LOG, Item=key(sort, partition))
    found: list[tuple[str, str]] = []
    start: dict[str, Any] = {}
    while True:
        answer = stage.tables.scan(TableName=LOG, Limit=4, **start)
        found += [(item["pk"]["S"], item["sk"]["S"]) for item in answer["Items"]]
        if "LastEvaluatedKey" not in answer:
            break
        start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
    assert sorted(found) == sorted(places)
    assert [*dict(found)] != sorted(dict(found)), "a hash orders partitions"


def test_a_filter_of_a_scan_may_name_keys(six: Stage) -> None:
    """developerguide/Scan.html, Filter expressions."""
    answer = six.tables.scan(TableName=LOG, FilterExpression="sk = :a", ExpressionAttributeValues={":a": text("a")})
    assert sorts(answer) == ["a", "a"]
    assert answer["ScannedCount"] == 7


def test_a_batch_gets_items_of_several_tables_in_no_order(six: Stage) -> None:
    """APIReference/API_BatchGetItem.html: does not return items in any particular order; missing items are left out."""
    six.tables.put_item(TableName="groups", Item=KEY)
    keys = [key("a"), key("b"), key("nothing")]
    answer = six.tables.batch_get_item(
        RequestItems={
            LOG: {"Keys": keys, "ConsistentRead": True, "ProjectionExpression": "n"},
            "groups": {"Keys": [KEY]},
        }
    )
    assert answer == {
        "Responses": {LOG: [{"n": number(1)}, {"n": number(4)}], "groups": [KEY]},
        "UnprocessedKeys": {},
    }


def test_a_batch_gets_100_items_each_once(stage: Stage) -> None:
    """APIReference/API_BatchGetItem.html: 100 items; ValidationException for more, or for a key twice."""
    keys = [key(str(each)) for each in range(101)]
    stage.tables.batch_get_item(RequestItems={LOG: {"Keys": keys[:100]}})
    refused(lambda: stage.tables.batch_get_item(RequestItems={LOG: {"Keys": keys}}), "Too many items")
    refused(lambda: stage.tables.batch_get_item(RequestItems={LOG: {"Keys": []}}), "Too many items")
    refused(lambda: stage.tables.batch_get_item(RequestItems={LOG: {"Keys": [KEY, KEY]}}), "duplicates")


def test_a_batch_gets_16_mb(stage: Stage) -> None:
    """APIReference/API_BatchGetItem.html: returns a partial result if the response size limit is exceeded (16 MB)."""
    keys = [key(str(each)) for each in range(50)]
    for each in keys:
        stage.tables.put_item(TableName=LOG, Item={**each, "a": {"B": bytes(400_000)}})
    request: Any = {LOG: {"Keys": keys, "ConsistentRead": True}}
    found: list[Any] = []
    while request:
        answer = stage.tables.batch_get_item(RequestItems=request)
        assert sum(map(item_bytes, answer["Responses"][LOG])) <= 16 * 2**20
        found += answer["Responses"][LOG]
        request = answer["UnprocessedKeys"]
        if request:
            assert request[LOG]["ConsistentRead"] is True
    assert sorted(item["sk"]["S"] for item in found) == sorted(each["sk"]["S"] for each in keys)


def test_reads_and_writes_tell_what_they_consumed(stage: Stage) -> None:
    """developerguide/read-write-operations.html: 4 KB a read unit, half of it if stale, 1 KB a write unit."""
    asked: Any = {"ReturnConsumedCapacity": "TOTAL"}

    def units(answer: Any) -> float:
        assert answer["ConsumedCapacity"]["TableName"] == LOG
        return float(answer["ConsumedCapacity"]["CapacityUnits"])

    assert units(stage.put({"a": {"B": bytes(5_000)}}, **asked)) == 5
    assert units(stage.put(**asked)) == 5, "the larger of old and new"
    assert units(stage.put({"a": {"B": bytes(5_000)}}, "t", **asked)) == 5
    assert units(stage.tables.get_item(TableName=LOG, Key=key("t"), **asked)) == 1
    assert units(stage.tables.get_item(TableName=LOG, Key=key("t"), ConsistentRead=True, **asked)) == 2
    assert units(stage.query(**asked)) == 2
    assert units(stage.tables.get_item(TableName=LOG, Key=key("nothing"), **asked)) == 0.5
