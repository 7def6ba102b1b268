from penstock_core.storage.item import ConditionalPut, ConditionalUpdate
from penstock_core.storage.push.delivery_item import versioned_write

ITEM = {"pk": {"S": "p"}, "sk": {"S": "s"}, "version": {"N": "1"}}


def test_first_version_is_put_where_there_is_none() -> None:
    assert versioned_write(ITEM, 1) == ConditionalPut(item=ITEM, condition="attribute_not_exists(pk)")


def test_other_version_keeps_what_it_does_not_name() -> None:
    found = versioned_write(ITEM, 2, optional=["note"])
    assert isinstance(found, ConditionalUpdate)
    assert found.update == "SET #new_version = :new_version REMOVE #new_note"
    assert (found.condition, found.values[":seen_version"]) == ("version = :seen_version", {"N": "1"})
