"""Reads templates: the resources of a type, and the permissions of a policy, as texts that a test can compare."""

from typing import Any


def of_type(resources: dict[str, dict[str, Any]], resource_type: str) -> dict[str, dict[str, Any]]:
    """Returns the properties of all resources of a type, by name."""
    return {name: resource["Properties"] for name, resource in resources.items() if resource["Type"] == resource_type}


def functions_in(resources: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the properties of the functions that run Penstock's handlers, by name."""
    found = of_type(resources, "AWS::Lambda::Function")
    return {name: each for name, each in found.items() if each["Handler"].startswith("penstock_handlers.")}


def policies_of_roles(resources: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Returns the statements of each role that has some, by the role as `name_of` writes it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, role in of_type(resources, "AWS::IAM::Role").items():
        for policy in role.get("Policies", []):
            found.setdefault(f"<{name}>", []).extend(policy["PolicyDocument"]["Statement"])
    for policy in of_type(resources, "AWS::IAM::Policy").values():
        for attached in policy["Roles"]:
            found.setdefault(name_of(attached), []).extend(policy["PolicyDocument"]["Statement"])
    return found


def name_of(value: Any) -> str:
    """Returns a reference, a join or a text as one text. A reference becomes `<name>`."""
    match value:
        case str():
            return value
        case {"Ref": str(target)}:
            return f"<{target if target.startswith('AWS::') else target[:-8]}>"
        case {"Fn::GetAtt": [str(target), "Arn"]}:
            return f"<{target[:-8]}>"
        case {"Fn::GetAtt": [str(target), str(attribute)]}:
            return f"<{target[:-8]}.{attribute}>"
        case {"Fn::Select": [int(index), {"Fn::Split": [str(separator), whole]}]}:
            return f"{name_of(whole)}[{separator}{index}]"
        case {"Fn::Sub": str(text)}:
            return text
        case {"Fn::Join": ["", [*parts]]}:
            return "".join(name_of(part) for part in parts)
    raise ValueError(f"no reference: {value!r}")


def as_list(value: Any) -> list[Any]:
    """Returns a list, also where IAM writes a single action or resource without one."""
    return value if isinstance(value, list) else [value]


def permissions(statements: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Returns all pairs of action and resource that are allowed. Fails on a statement that denies or inverts."""
    assert all(set(statement) <= {"Action", "Effect", "Resource", "Condition"} for statement in statements)
    assert all(statement["Effect"] == "Allow" for statement in statements)
    return {
        (action, name_of(resource))
        for statement in statements
        for action in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }
