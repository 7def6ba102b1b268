"""The comparison of a deployment with the stack: what counts as a difference, and what does not."""

from typing import Any

import pytest

from penstock.restore.deployment import differences

HASH, OTHER = "0" * 64, "f" * 64


def template(files: str, **changes: Any) -> dict[str, Any]:
    """A function with its version and alias, as the CDK names them."""
    version = f"FunctionVersion{files[:8]}"
    function = {"Code": {"S3Bucket": "assets", "S3Key": f"{files}.zip"}, "Description": "Segments — appended"}
    return {
        "Metadata": {"Penstock": '{"name": "penstock"}'},
        "Resources": {
            "Function": {
                "Type": "AWS::Lambda::Function",
                "Properties": function,
                "Metadata": {"path": files},
            },
            version: {"Type": "AWS::Lambda::Version", "Properties": {"FunctionName": {"Ref": "Function"}}},
            "Alias": {
                "Type": "AWS::Lambda::Alias",
                "Properties": {"FunctionVersion": {"Fn::GetAtt": [version, "Version"]}},
            },
        },
        "Outputs": {"Log": {"Value": {"Ref": "Log"}}},
        **changes,
    }


def test_files_of_another_machine_and_text_as_cloudformation_shows_it_are_no_differences() -> None:
    shown = template(OTHER)
    shown["Resources"]["Function"]["Properties"]["Description"] = "Segments ? appended"
    assert [*differences(shown, template(HASH))] == []


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (
            {"Metadata": {"Penstock": '{"name": "other"}'}},
            'Metadata.Penstock: {"name": "penstock"} -> {"name": "other"}',
        ),
        ({"Metadata": {}}, "Metadata.Penstock would go"),
        ({"Outputs": {"Log": {"Value": {"Ref": "Log2"}}}}, "Outputs.Log.Value.Ref: Log -> Log2"),
        ({"Conditions": {"No": False}}, "Conditions would be new"),
        ({"Resources": {}}, "Resources.Alias would go"),
    ],
)
def test_any_other_difference_is_found(changes: dict[str, Any], found: str) -> None:
    assert found in [*differences(template(HASH), template(HASH, **changes))]


def test_alias_of_another_function_is_a_difference() -> None:
    other = template(HASH)
    other["Resources"]["Alias"]["Properties"]["FunctionVersion"] = {"Fn::GetAtt": ["Function", "Version"]}
    [found] = differences(template(HASH), other)
    assert found.startswith("Resources.Alias.Properties.FunctionVersion.Fn::GetAtt: ")
