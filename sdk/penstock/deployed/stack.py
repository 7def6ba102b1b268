"""The CloudFormation stack of a stage, and which of its functions, rules and schedules belong to that stage.

All of it is read off the stack itself: a function belongs to the stage if its environment names the stage's log table,
and it writes if its role may. So no list here goes stale with a release.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.deployed.aws import Aws
from penstock.tuning.stage import settings_in
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.index import Waiter
from penstock_core.release import METADATA_KEY as RELEASE_KEY
from penstock_core.release import ReleaseFacts, parse_facts
from penstock_core.stack_outputs import StackPlace, outputs_of, parse_stack_place
from penstock_core.storage import keys

_LOG_TABLE = "PENSTOCK_LOG_TABLE"
_WRITES = frozenset(f"dynamodb:{each}" for each in ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "*"))
_BUCKETS = f"{keys.BUCKET}#"  # of quotas: no record and no offset hangs on them
_HANDLERS = "penstock_handlers."
_APP = "penstock"  # with which the names of all stages of app.py begin
_SCHEDULE = "AWS::Scheduler::Schedule"
# A stack whose creation failed (ROLLBACK_COMPLETE) can only be deleted.
_DEPLOYABLE = frozenset(
    {
        "CREATE_COMPLETE",
        "UPDATE_COMPLETE",
        "UPDATE_ROLLBACK_COMPLETE",
        "IMPORT_COMPLETE",
        "IMPORT_ROLLBACK_COMPLETE",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFunction:
    """A Lambda function that knows the stage's tables.

    `handler` is its name in the product, such as `produce`, "" for a function of yours. `writes`: its role may change
    what the tables hold. A waiter of a head and a bucket of a quota do not count.
    """

    name: str
    logical_id: str
    handler: str
    writes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedStack:
    """A stack as CloudFormation tells it. `physical` has the names of its resources by their logical ids."""

    place: StackPlace
    status: str
    outputs: Mapping[str, str]
    settings: Mapping[str, Any]
    template: Mapping[str, Any]
    physical: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of the stage, with which the names of its resources begin."""
        return str(self.settings["name"])

    @property
    def is_deployable(self) -> bool:
        """The last deployment has ended, and CloudFormation takes another one."""
        return self.status in _DEPLOYABLE

    @property
    def is_of_your_app(self) -> bool:
        """The stack is made by an app of yours, so its settings do not come from the context of `cdk`."""
        return bool(self.place.prefix) or not self.name.startswith(_APP)

    def contexts(self, given: Sequence[str]) -> list[str]:
        """The `-c` of a deployment: those that were given, behind the stage unless they name it."""
        if self.is_of_your_app or any(each.startswith("stage=") for each in given):
            return [*given]
        stage = "local" if self.settings.get("storage_profile") == "local" else "prod"
        return [f"stage={stage if self.name == _APP else self.name.removeprefix(f'{_APP}-')}", *given]

    @property
    def release(self) -> ReleaseFacts | None:
        """The release that the stack was deployed from. None if it is from before releases were told."""
        return release_in(self.template, self.place)

    def functions(self) -> list[StageFunction]:
        """The functions that know the stage's log table, in the order of their names."""
        table = self.template.get("Outputs", {}).get(f"{self.place.prefix}LogTable", {}).get("Value")
        found = []
        for logical_id, each in self._of_type("AWS::Lambda::Function"):
            if each.get("Environment", {}).get("Variables", {}).get(_LOG_TABLE, ...) == table:
                module, _, _ = str(each.get("Handler", "")).removeprefix(_HANDLERS).partition(".")
                is_ours = str(each.get("Handler", "")).startswith(_HANDLERS)
                found.append(
                    StageFunction(
                        name=self.physical[logical_id],
                        logical_id=logical_id,
                        handler=module if is_ours else "",
                        writes=self._writes(each.get("Role")),
                    )
                )
        return sorted(found, key=lambda function: function.name)

    def starters(self, resource_type: str, functions: Iterable[StageFunction]) -> list[tuple[str, str]]:
        """Resources of a type that start one of these functions, themselves or by an alias: id and physical name."""
        wanted = {function.logical_id for function in functions}
        return sorted(
            (logical_id, self.physical[logical_id])
            for logical_id, each in self._of_type(resource_type)
            if logical_id in self.physical and wanted & set(self._functions_in(each))
        )

    def schedules(self) -> list[str]:
        """The names of the schedules that start Spark jobs of the stage."""
        return sorted(
            self.physical[logical_id]
            for logical_id, each in self._of_type(_SCHEDULE)
            if str(each.get("Name", "")).startswith(f"{self.name}-") and logical_id in self.physical
        )

    def resources_of(self, resource_type: str) -> list[str]:
        """The physical names of all resources of a type."""
        return sorted(self.physical[each] for each, _ in self._of_type(resource_type) if each in self.physical)

    def _of_type(self, resource_type: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for logical_id, resource in self.template.get("Resources", {}).items():
            if resource["Type"] == resource_type:
                yield logical_id, resource.get("Properties", {})

    def _functions_in(self, value: Any) -> Iterator[str]:
        resources = self.template["Resources"]
        for logical_id in references_in(value):
            kind = resources.get(logical_id, {}).get("Type")
            if kind == "AWS::Lambda::Function":
                yield logical_id
            elif kind == "AWS::Lambda::Alias":
                yield from references_in(resources[logical_id]["Properties"]["FunctionName"])

    def _writes(self, role: Any) -> bool:
        """Whether a role may change items. One that is not in the template may, because the stack does not tell."""
        roles = [each for each in references_in(role) if each in self.template["Resources"]]
        if not roles:
            return True
        policies = [*self.template["Resources"][roles[0]].get("Properties", {}).get("Policies", ())]
        policies += [each for _, each in self._of_type("AWS::IAM::Policy") if roles[0] in references_in(each["Roles"])]
        return any(
            _changes_items(statement) for policy in policies for statement in policy["PolicyDocument"]["Statement"]
        )


def read_stack(aws: Aws, stack: str) -> DeployedStack:
    """One DescribeStacks, one GetTemplate, and one ListStackResources for each 100 resources.

    Raises INVALID_CONFIG if the stack cannot be read or has no Penstock of this version.
    """
    place = parse_stack_place(stack)
    [found] = aws.call("cloudformation", "describe_stacks", place.stack, StackName=place.stack)["Stacks"]
    template = aws.call("cloudformation", "get_template", place.stack, StackName=place.stack)["TemplateBody"]
    settings = settings_in(template, stack)
    outputs = outputs_of(found, place)
    if "LogTable" not in outputs:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"stack {stack!r:.100} has no output LogTable: name its Penstock")
    resources = aws.pages(
        "StackResourceSummaries",
        "cloudformation",
        "list_stack_resources",
        place.stack,
        StackName=place.stack,
    )
    return DeployedStack(
        place=place,
        status=found["StackStatus"],
        outputs=outputs,
        settings=settings,
        template=template,
        physical={each["LogicalResourceId"]: each["PhysicalResourceId"] for each in resources},
    )


def release_in(template: Mapping[str, Any], place: StackPlace) -> ReleaseFacts | None:
    """The release that a template tells, None if it tells none. Raises UNSUPPORTED_FORMAT for one told otherwise."""
    told = template.get("Metadata", {}).get(f"{RELEASE_KEY}{place.prefix}")
    try:
        return None if told is None else parse_facts(json.loads(told))
    except (KeyError, TypeError, ValueError) as error:
        message = (
            f"stack {place.stack} tells its release in another form ({error!s:.100}): use that release, or a later one"
        )
        raise PenstockError(ErrorCode.UNSUPPORTED_FORMAT, message) from error


def references_in(value: Any) -> Iterator[str]:
    """The logical ids that a value of a template refers to."""
    match value:
        case {"Ref": str(logical_id)} | {"Fn::GetAtt": [str(logical_id), _]}:
            yield logical_id
        case dict():
            for each in value.values():
                yield from references_in(each)
        case list():
            for each in value:
                yield from references_in(each)


def _changes_items(statement: Mapping[str, Any]) -> bool:
    actions = statement.get("Action", ())
    if statement["Effect"] != "Allow" or not _WRITES & set([actions] if isinstance(actions, str) else actions):
        return False
    conditions = statement.get("Condition", {})
    leading = conditions.get("ForAllValues:StringLike", {}).get("dynamodb:LeadingKeys", ())
    attributes = conditions.get("ForAllValues:StringEquals", {}).get("dynamodb:Attributes", ())
    is_of_buckets = bool(leading) and all(key.startswith(_BUCKETS) for key in leading)
    return not is_of_buckets and Waiter.READER.value not in attributes
