"""DescribeAcls, CreateAcls and DeleteAcls, onto the stage's access rules."""

from collections.abc import Sequence

from penstock.api.acl_calls import change_acls, list_acls
from penstock.model.access import AccessRule
from penstock_core.errors import PenstockError
from penstock_core.limits import ACL_CHANGES_MAX
from penstock_kafka.admin.acl_binding import AclBinding, binding_of, matches, rules_of
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError, RequestRefused, error_message, kafka_error

_EVERY_HOST = "*"


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
