"""A group that a call has made stays on the list and under its claim, whichever answers are lost during a deletion."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import GroupName
from penstock_core.limits import CLAIM_GRACE_MS
from penstock_service.groups.claim_group import list_group
from penstock_service.groups.delete_group import delete_group
from penstock_service.groups.expire_offsets import expire_offsets
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.quotas.admin.set_quota import put_quota
from tests.service.groups.test_claim_group import ADA, BOB, MONTH_MS, alter, claims, commit, document, is_there
from tests.support.service import Intercepted, SteppedClock, another_instance, new_topic

LOST = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "no answer", maybe_applied=True)


def listed(instance: Instance) -> list[GroupName]:
    return [*instance.stores.memberships.registered("", 10)]


def test_group_that_comes_back_while_it_is_removed_is_listed(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    commit(instance, "billing")
    clock.time_ms += 24 * MONTH_MS

    def lost(unregister: Callable[[GroupName], object], group: GroupName) -> object:
        commit(another_instance(instance), "billing")
        unregister(group)
        raise LOST

    racing = another_instance(instance, memberships=Intercepted(instance.stores.memberships, unregister=lost))
    assert expire_offsets(racing, budget_ms=1_000).failures == 1
    assert is_there(instance, "billing")
    assert listed(instance) == ["billing"]


@pytest.mark.parametrize("make", [alter, document])
def test_group_whose_first_write_lost_its_answer_behind_a_deletion_is_listed(
    make: Callable[[Instance, str], object], instance: Instance
) -> None:
    new_topic(instance)

    def lose(write: Callable[..., object], *arguments: Any) -> object:
        with suppress(PenstockError):
            delete_group(another_instance(instance), "billing")
        write(*arguments)
        raise LOST

    racing = another_instance(instance, memberships=Intercepted(instance.stores.memberships, change_group=lose))
    with pytest.raises(PenstockError):
        make(racing, "billing")
    assert is_there(instance, "billing")
    assert (listed(instance), claims(instance)) == (["billing"], ["billing"])


def test_claim_counts_no_longer_once_another_principal_has_the_name(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    put_quota(instance, "principal", ADA, {"groups_max": 1})

    def lost(*_: object) -> object:
        raise LOST

    racing = another_instance(instance, memberships=Intercepted(instance.stores.memberships, register=lost))
    with pytest.raises(PenstockError):
        commit(racing, "billing")
    list_group(instance, UpdateWindow.open(instance.clock), BOB, GroupName("billing"))
    clock.sleep_ms(CLAIM_GRACE_MS * 10)
    commit(another_instance(instance), "shipping")
    assert claims(instance) == ["shipping"]
