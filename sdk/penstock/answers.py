"""The values of model.py and group_model.py from the service's answers, whose fields have the same names."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value", bound="DataclassInstance")


def value_of(kind: type[Value], answer: Mapping[str, Any]) -> Value:
    """Every field of `kind` from the answer, lists as tuples. Other fields of the answer are left out.

    An older service leaves out what it does not know. Fields with a default have that then.
    """
    known = {
        each.name: answer[each.name]
        for each in fields(kind)
        if each.name in answer or each.default is each.default_factory is MISSING
    }
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in known.items()})
