"""Short calls of tables in memory, for tests. Each item has the keys "p" and "s" in the table `log`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock_service.adapters.dynamodb.driver_errors import AnsweredError
from penstock_service.adapters.tables.tables import Change, Strain, Tables

LOG = "log"
KEY = {"pk": {"S": "p"}, "sk": {"S": "s"}}


def key(sort: str, partition: str = "p") -> dict[str, Any]:
    return {"pk": {"S": partition}, "sk": {"S": sort}}


def number(value: object) -> dict[str, Any]:
    return {"N": str(value)}


def text(value: str) -> dict[str, Any]:
    return {"S": value}


@dataclass
class Stage:
    """Tables, their time, and what their stream told."""

    now_ms: int = 1_000_000_000_000
    changes: list[Change] = field(default_factory=list)
    tables: Tables = field(init=False)

    def __post_init__(self) -> None:
        self.tables = Tables(lambda: self.now_ms, self.changes.append)

    def strain(self, **strain: Any) -> None:
        """From now on, the tables are as busy as this."""
        self.tables._strain = Strain(**strain)

    def put(self, attributes: Mapping[str, Any] | None = None, sort: str = "s", **more: Any) -> Any:
        return self.tables.put_item(TableName=LOG, Item={**key(sort), **(attributes or {})}, **more)

    def get(self, sort: str = "s", **more: Any) -> dict[str, Any]:
        """The item without its keys."""
        item = self.tables.get_item(TableName=LOG, Key=key(sort), ConsistentRead=True, **more)["Item"]
        return {name: value for name, value in item.items() if name not in KEY}

    def update(self, expression: str, values: Any = None, names: Any = None, **more: Any) -> Any:
        placeholders = {"ExpressionAttributeValues": values, "ExpressionAttributeNames": names}
        given = {name: value for name, value in placeholders.items() if value is not None}
        return self.tables.update_item(TableName=LOG, Key=KEY, UpdateExpression=expression, **given, **more)

    def holds(self, condition: str, values: Any = None, names: Any = None) -> bool:
        """True if the condition holds for the item."""
        placeholders = {"ExpressionAttributeValues": values, "ExpressionAttributeNames": names}
        given = {name: value for name, value in placeholders.items() if value is not None}
        check = {"TableName": LOG, "Key": KEY, "ConditionExpression": condition, **given}
        try:
            self.tables.transact_write_items(TransactItems=[{"ConditionCheck": check}])
        except AnsweredError as error:
            if error.code != "TransactionCanceledException":
                raise
            return [reason["Code"] for reason in error.reasons] != ["ConditionalCheckFailed"]
        return True

    def query(self, condition: str = "pk = :p", *, values: Any = None, **more: Any) -> Any:
        given = {":p": text("p"), **(values or {})}
        return self.tables.query(
            TableName=LOG,
            KeyConditionExpression=condition,
            ExpressionAttributeValues=given,
            **{"ConsistentRead": True, **more},
        )

    def transact(self, *actions: Mapping[str, Any], **more: Any) -> Any:
        return self.tables.transact_write_items(TransactItems=actions, **more)


def sorts(answer: Mapping[str, Any]) -> list[str]:
    """The sort keys of an answer's items."""
    return [item["sk"]["S"] for item in answer["Items"]]


def refused(call: Callable[[], object], match: str | None = None, code: str = "ValidationException") -> AnsweredError:
    """The error that DynamoDB answers."""
    with pytest.raises(AnsweredError, match=match) as caught:
        call()
    assert caught.value.code == code, caught.value
    assert caught.value.status == 400
    return caught.value
