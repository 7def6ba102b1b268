"""The expressions of one call together: what binds names and values to them, and refuses those that nothing uses.

A statement is compiled once for its texts. Each call checks its own names and values against it.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.ExpressionAttributeNames.html
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any

from penstock_core.storage.table_declarations import PARTITION_KEY, SORT_KEY
from penstock_service.adapters.tables.conditions import (
    Condition,
    KeyCondition,
    Projection,
    compile_condition,
    compile_key_condition,
    compile_projection,
)
from penstock_service.adapters.tables.parser import Names, Values
from penstock_service.adapters.tables.updates import Update, compile_update
from penstock_service.adapters.tables.values import invalid, normal

KEYS = (PARTITION_KEY, SORT_KEY)
_STATEMENTS_MAX = 4_096
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """All compiled expressions of a call, each None if the call has none."""

    update: Update | None
    condition: Condition | None
    key_condition: KeyCondition | None
    filter: Condition | None
    projection: Projection | None
    names: frozenset[str] = field(init=False)
    values: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        parts = (self.update, self.condition, self.key_condition, self.filter, self.projection)
        for member in ("names", "values"):
            used = chain.from_iterable(getattr(part, member) for part in parts if part is not None)
            object.__setattr__(self, member, frozenset(used))

    def bound(self, arguments: Mapping[str, Any]) -> tuple[Names, Values]:
        """The names and values of a call, checked. Raises ValidationException."""
        names: Names = arguments.get("ExpressionAttributeNames", _NOTHING)
        given: Values = arguments.get("ExpressionAttributeValues", _NOTHING)
        if names.keys() != self.names or given.keys() != self.values:
            raise self._unlike(names, given)
        if (not names and names is not _NOTHING) or (not given and given is not _NOTHING):
            raise invalid("ExpressionAttributeNames and ExpressionAttributeValues must not be empty")
        values = {name: normal(value) for name, value in given.items()}
        for part in (self.update, self.condition, self.key_condition, self.filter):
            if part is not None:
                for check in part.checks:
                    check(values)
        if self.update is not None and self.update.has_named_paths:
            self.update.check_paths(names, KEYS)
        return names, values

    def _unlike(self, names: Names, values: Values) -> Exception:
        for parameter, used, given in (
            ("ExpressionAttributeNames", self.names, names),
            ("ExpressionAttributeValues", self.values, values),
        ):
            if missing := sorted(used - given.keys()):
                what = "name used in the document path" if given is names else "value used in expression"
                return invalid(f"An expression attribute {what} is not defined; {', '.join(missing)}")
            if unused := sorted(given.keys() - used):
                return invalid(f"Value provided in {parameter} unused in expressions: keys: {{{', '.join(unused)}}}")
        raise AssertionError("the caller found a difference")


@lru_cache(_STATEMENTS_MAX)
def compiled(
    update: str | None, condition: str | None, key_condition: str | None, filter_: str | None, projection: str | None
) -> Statement:
    """The statement of these texts. Raises ValidationException."""
    statement = Statement(
        update=None if update is None else compile_update(update),
        condition=None if condition is None else compile_condition("ConditionExpression", condition),
        key_condition=None if key_condition is None else compile_key_condition(key_condition),
        filter=None if filter_ is None else compile_condition("FilterExpression", filter_),
        projection=None if projection is None else compile_projection(projection),
    )
    if statement.update is not None and not statement.update.has_named_paths:
        statement.update.check_paths({}, KEYS)
    return statement


def statement_of(arguments: Mapping[str, Any]) -> Statement:
    """The statement of a call. Raises ValidationException."""
    get = arguments.get
    return compiled(
        get("UpdateExpression"),
        get("ConditionExpression"),
        get("KeyConditionExpression"),
        get("FilterExpression"),
        get("ProjectionExpression"),
    )


def projected(item: Mapping[str, Any], statement: Statement, names: Names) -> Mapping[str, Any]:
    """The attributes that the call asks for."""
    if statement.projection is None:
        return item
    wanted = (names.get(root, root) for root in statement.projection.roots)
    return {name: item[name] for name in wanted if name in item}


def check_parameters(operation: str, arguments: Mapping[str, Any], known: AbstractSet[str]) -> None:
    """Raises TypeError for a parameter that the tables in memory do not know."""
    if not arguments.keys() <= known:
        raise TypeError(f"{operation} of the tables in memory knows no {sorted(arguments.keys() - known)}")
