"""DescribeAcls, CreateAcls and DeleteAcls, onto the stage's access rules.

Access rules as Kafka's ACL bindings.

| Kafka                                              | Penstock                                          |
|----------------------------------------------------|---------------------------------------------------|
| principal `User:arn:aws:iam::…:role/shop`, `User:*` | `arn:aws:iam::…:role/shop`, `*`                   |
| topic, group, transactional id, cluster            | topic, group, transactional_id, service           |
| literal name, literal `*`, prefixed name           | `orders`, `*`, `orders*`                          |
| read, write, create, delete, alter, describe, all  | the same words                                    |
| host `*`                                           | every rule                                        |

Rules about share groups, subscriptions and `*` of all kinds have no binding: they are neither shown nor deleted here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from penstock.api.acl_calls import change_acls, list_acls
from penstock.model.access import AccessRule
from penstock_core.errors import PenstockError
from penstock_core.limits import ACL_CHANGES_MAX
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.dispatch.names import kafka_name, kafka_prefix, service_name, service_prefixes
from penstock_kafka.errors import KafkaError, RequestRefused, error_message, kafka_error

_EVERY_HOST = "*"
_ANY = 1
_USER = "User:"
_EVERY = "*"
_CLUSTER_NAME = "kafka-cluster"
_KINDS = {2: "topic", 3: "group", 4: "service", 5: "transactional_id"}
_NAMED = ("group", "transactional_id")  # whose names the service may have in another form
_OPERATIONS = {2: "all", 3: "read", 4: "write", 5: "create", 6: "delete", 7: "alter", 8: "describe"}
_PERMISSIONS = {2: "deny", 3: "allow"}


class Pattern(IntEnum):
    """Kafka's numbers of kinds of names."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBinding:
    """A rule by Kafka's numbers."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    operation: int
    permission_type: int


def binding_of(rule: AccessRule) -> AclBinding | None:
    """The binding that shows a rule; None if there is none."""
    kind, _, name = rule.resource.partition(":")
    numbers = {word: number for number, word in _KINDS.items()}
    if kind not in numbers:
        return None
    pattern = Pattern.LITERAL
    if kind == "service":
        name = _CLUSTER_NAME
    elif name != _EVERY and name.endswith(_EVERY):
        name, pattern = name.removesuffix(_EVERY), Pattern.PREFIXED
    if kind in _NAMED:
        name = kafka_prefix(name) if pattern is Pattern.PREFIXED else kafka_name(name)
    return AclBinding(
        resource_type=numbers[kind],
        resource_name=name,
        pattern_type=pattern,
        principal=_USER + rule.principal,
        operation=next(number for number, word in _OPERATIONS.items() if word == rule.operation),
        permission_type=next(number for number, word in _PERMISSIONS.items() if word == rule.permission),
    )


def rules_of(creation: Request) -> list[AccessRule]:
    """The rules that a binding asks for. Raises RequestRefused if Penstock has no such rules.

    A prefix of groups or transactional ids has two: the service has some of their names in another form.
    """
    kind = _KINDS.get(creation.resource_type)
    operation = _OPERATIONS.get(creation.operation)
    permission = _PERMISSIONS.get(creation.permission_type)
    pattern = getattr(creation, "resource_pattern_type", Pattern.LITERAL)
    if kind is None or operation is None or permission is None or pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise _refused(
            f"resource type {creation.resource_type}, pattern {pattern}, operation {creation.operation}, permission "
            f"{creation.permission_type}: give topic, group, transactional id or cluster, a literal or prefixed name, "
            "and one of read, write, create, delete, alter, describe and all"
        )
    if creation.host != _EVERY:
        raise _refused(f"host {creation.host[:100]!r}: rules hold for all hosts, so give *")
    if not creation.principal.startswith(_USER):
        raise _refused(f"principal {creation.principal[:100]!r}: give User: and an IAM ARN, or User:*")
    return [
        AccessRule(
            principal=creation.principal.removeprefix(_USER),
            operation=operation,
            resource=resource,
            permission=permission,
        )
        for resource in _resources(kind, str(creation.resource_name), is_prefix=pattern == Pattern.PREFIXED)
    ]


def matches(wanted: Request, binding: AclBinding) -> bool:
    """True if a filter takes this binding."""
    return (
        wanted.resource_type_filter in (_ANY, binding.resource_type)
        and wanted.operation in (_ANY, binding.operation)
        and wanted.permission_type in (_ANY, binding.permission_type)
        and wanted.principal_filter in (None, binding.principal)
        and wanted.host_filter in (None, _EVERY)
        and _matches_name(wanted.resource_name_filter, getattr(wanted, "pattern_type_filter", Pattern.LITERAL), binding)
    )


def _resources(kind: str, name: str, *, is_prefix: bool) -> list[str]:
    if kind == "service":
        return [kind]
    if not is_prefix:
        return [f"{kind}:{service_name(name) if kind in _NAMED and name != _EVERY else name}"]
    try:
        names = service_prefixes(name) if kind in _NAMED and name not in ("", _EVERY) else (name,)
    except ValueError as error:
        raise _refused(f"prefix {error}: give a longer one, or *") from error
    return [f"{kind}:{each}{_EVERY}" for each in names]


def _matches_name(name: str | None, pattern: int, binding: AclBinding) -> bool:
    if pattern == Pattern.MATCH:
        if name is None:
            return True
        if binding.pattern_type == Pattern.PREFIXED:
            return name.startswith(binding.resource_name)
        return binding.resource_name in (name, _EVERY)
    return pattern in (Pattern.ANY, binding.pattern_type) and name in (None, binding.resource_name)


def _refused(why: str) -> RequestRefused:
    return RequestRefused(KafkaError.invalid_request, why)


class Acls:
    """Shows and changes access rules. The host's role needs the right to do so."""

    def __init__(self, context: Context) -> None:
        self._service = context.service

    async def describe(self, call: Call) -> Answer:
        """DescribeAcls: the rules that the filter takes, by resource."""
        try:
            found = await self._found(call.request)
        except PenstockError as error:
            return {"error_code": kafka_error(error), "error_message": error_message(error), "resources": []}
        resources: dict[tuple[int, str, int], list[Answer]] = {}
        for binding in dict.fromkeys(found.values()):
            where = (binding.resource_type, binding.resource_name, binding.pattern_type)
            resources.setdefault(where, []).append(_shown(binding))
        return {
            "error_code": KafkaError.none,
            "resources": [
                {"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": acls}
                for (kind, name, pattern), acls in resources.items()
            ],
        }

    async def create(self, call: Call) -> Answer:
        """CreateAcls: each rule has its own result."""
        return {"results": [await self._created(each) for each in call.request.creations]}

    async def delete(self, call: Call) -> Answer:
        """DeleteAcls: each filter has its own result, with the rules that it took."""
        return {"filter_results": [await self._deleted(each) for each in call.request.filters]}

    async def _found(self, wanted: Request) -> dict[AccessRule, AclBinding]:
        rules = await self._service.call(list_acls(None, None))
        found = {rule: binding_of(rule) for rule in rules}
        return {rule: each for rule, each in found.items() if each is not None and matches(wanted, each)}

    async def _created(self, wanted: Request) -> Answer:
        try:
            await self._service.call(change_acls(rules_of(wanted), []))
        except (PenstockError, RequestRefused) as error:
            return {"error_code": kafka_error(error), "error_message": error_message(error)}
        return {"error_code": KafkaError.none}

    async def _deleted(self, wanted: Request) -> Answer:
        try:
            found = await self._found(wanted)
            await self._remove([*found])
        except PenstockError as error:
            return {"error_code": kafka_error(error), "error_message": error_message(error), "matching_acls": []}
        matching = [
            {
                **_shown(each),
                "error_code": KafkaError.none,
                "resource_type": each.resource_type,
                "resource_name": each.resource_name,
                "pattern_type": each.pattern_type,
            }
            for each in dict.fromkeys(found.values())
        ]
        return {"error_code": KafkaError.none, "matching_acls": matching}

    async def _remove(self, rules: Sequence[AccessRule]) -> None:
        for start in range(0, len(rules), ACL_CHANGES_MAX):
            await self._service.call(change_acls([], rules[start : start + ACL_CHANGES_MAX]))


def _shown(binding: AclBinding) -> Answer:
    return {
        "principal": binding.principal,
        "host": _EVERY_HOST,
        "operation": binding.operation,
        "permission_type": binding.permission_type,
    }
