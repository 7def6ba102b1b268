from penstock_core.acls.right import IMPLY_DESCRIBE, Kind, Operation, Right


def test_resource_is_text_as_a_rule_writes_it() -> None:
    assert Right(operation=Operation.READ, kind=Kind.SHARE_GROUP, name="w").resource == "share_group:w"
    assert Right(operation=Operation.READ, kind=Kind.SERVICE).resource == "service"


def test_create_alone_does_not_imply_describe() -> None:
    assert {*Operation} - IMPLY_DESCRIBE == {Operation.CREATE, Operation.DESCRIBE}
