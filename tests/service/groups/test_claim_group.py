"""A group counts as that of the principal whose call makes it."""

import pytest

from penstock_core.errors import PenstockError
from penstock_core.ids import GroupName
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.groups.claim_group import claim_group
from penstock_service.quotas.admin.set_quota import put_quota

ADA, BOB = "arn:aws:iam::1:user/ada", "arn:aws:iam::1:user/bob"


def test_group_that_is_there_is_claimed_by_nobody_else() -> None:
    instance = memory_instance()
    put_quota(instance, "principal", "*", {"groups_max": 1})
    claim_group(instance, ADA, "billing")
    instance.group_cache.register(GroupName("billing"))
    claim_group(instance, BOB, "billing")
    assert [*instance.stores.quotas.claims(BOB)] == []
    with pytest.raises(PenstockError, match="would have 2 groups"):
        claim_group(instance, ADA, "shipping")
