from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, number, rewriting


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


def test_rewriting_sets_what_the_item_has_and_removes_optional_attributes_that_it_lacks() -> None:
    item = {"pk": {"S": "a"}, "sk": {"S": "b"}, "size": {"N": "1"}, "late": {"N": "2"}}
    update = rewriting(item, "#size = :seen", {":seen": {"N": "0"}}, names={"#size": "size"}, optional=("late", "gone"))
    assert update.arguments() == {
        "Key": {"pk": {"S": "a"}, "sk": {"S": "b"}},
        "UpdateExpression": "SET #new_size = :new_size, #new_late = :new_late REMOVE #new_gone",
        "ConditionExpression": "#size = :seen",
        "ExpressionAttributeValues": {":new_size": {"N": "1"}, ":new_late": {"N": "2"}, ":seen": {"N": "0"}},
        "ExpressionAttributeNames": {"#new_size": "size", "#new_late": "late", "#new_gone": "gone", "#size": "size"},
    }
