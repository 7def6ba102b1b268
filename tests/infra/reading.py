"""Reads templates: resources of a type, and what a policy allows, in words that a test can compare."""

from typing import Any


def of_type(resources: dict[str, dict[str, Any]], resource_type: str) -> dict[str, dict[str, Any]]:
    """Properties by name of all resources of a type."""
    return {name: resource["Properties"] for name, resource in resources.items() if resource["Type"] == resource_type}


def name_of(value: Any) -> str:
    """A reference, a join or a text as one text, references as `<name>`."""
    match value:
        case str():
            return value
        case {"Ref": str(target)}:
            return f"<{target if target.startswith('AWS::') else target[:-8]}>"
        case {"Fn::GetAtt": [str(target), "Arn"]}:
            return f"<{target[:-8]}>"
        case {"Fn::GetAtt": [str(target), str(attribute)]}:
            return f"<{target[:-8]}.{attribute}>"
        case {"Fn::Sub": str(text)}:
            return text
        case {"Fn::Join": ["", [*parts]]}:
            return "".join(name_of(part) for part in parts)
    raise ValueError(f"no reference: {value!r}")


def as_list(value: Any) -> list[Any]:
    """IAM writes one action or resource without a list."""
    return value if isinstance(value, list) else [value]


def permissions(statements: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """All pairs of action and resource that the statements allow; fails on anything that widens them."""
    assert all(set(statement) <= {"Action", "Effect", "Resource", "Condition"} for statement in statements)
    assert all(statement["Effect"] == "Allow" for statement in statements)
    return {
        (action, name_of(resource))
        for statement in statements
        for action in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }
