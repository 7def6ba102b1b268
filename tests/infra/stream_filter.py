"""Lambda's rules for the filter of an event source, those that Penstock uses."""

from typing import Any


def matches(pattern: Any, value: Any) -> bool:
    """Applies the filter to a record. Fails on a rule that no filter uses today."""
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(matches(below, value.get(name)) for name, below in pattern.items())
    for rule in pattern:
        if isinstance(rule, dict):
            [(kind, wanted)] = rule.items()
            assert kind in ("anything-but", "exists")
            if (value is not None) is wanted if kind == "exists" else value is not None and value not in wanted:
                return True
        elif value == rule:
            return True
    return False
