from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, number


def test_number_is_written_in_all_its_digits() -> None:
    assert [number(value) for value in (-1, 0, 2**63 - 1)] == [{"N": "-1"}, {"N": "0"}, {"N": "9223372036854775807"}]


def test_conditional_update_has_the_arguments_of_update_item() -> None:
    update = ConditionalUpdate(
        key={"pk": {"S": "a"}}, update="SET b = :b", condition="c = :b", values={":b": number(1)}
    )
    assert update.arguments() == {
        "Key": {"pk": {"S": "a"}},
        "UpdateExpression": "SET b = :b",
        "ConditionExpression": "c = :b",
        "ExpressionAttributeValues": {":b": {"N": "1"}},
    }
    named = ConditionalUpdate(key={}, update="REMOVE #a", condition="#a", values={}, names={"#a": "b"})
    assert named.arguments()["ExpressionAttributeNames"] == {"#a": "b"}


def test_conditional_put_has_the_arguments_of_put_item() -> None:
    put = ConditionalPut(item={"pk": {"S": "a"}}, condition="attribute_not_exists(pk)")
    assert put.arguments() == {"Item": {"pk": {"S": "a"}}, "ConditionExpression": "attribute_not_exists(pk)"}
    named = ConditionalPut(item={}, condition="#a = :a", values={":a": number(1)}, names={"#a": "b"})
    assert named.arguments() == {
        "Item": {},
        "ConditionExpression": "#a = :a",
        "ExpressionAttributeNames": {"#a": "b"},
        "ExpressionAttributeValues": {":a": {"N": "1"}},
    }
