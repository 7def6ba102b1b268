"""The values of model.py and group_model.py from answers of the service, which name their fields as they do."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value", bound="DataclassInstance")


def value_of(kind: type[Value], answer: Mapping[str, Any]) -> Value:
    """Every field of `kind` as it was answered, lists as tuples. What else was answered is left out."""
    told = {each.name: answer[each.name] for each in fields(kind)}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in told.items()})
