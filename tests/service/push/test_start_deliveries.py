"""Deliveries stay switched on while there is a subscription, whatever a deployment has reset."""

from penstock_service.push.subscriptions import keep_deliveries_on
from tests.support.push_deliveries import Deliveries
from tests.support.service import UNAVAILABLE, Intercepted, with_stores


def test_deliveries_are_switched_on_again_while_there_is_a_subscription() -> None:
    deliveries = Deliveries()
    deliveries.queue.is_on = False
    keep_deliveries_on(deliveries.instance)
    assert deliveries.queue.is_on


def test_deliveries_stay_off_without_a_subscription() -> None:
    deliveries = Deliveries()
    deliveries.instance.stores.push.delete_subscription(deliveries.subscription, 0)
    deliveries.queue.is_on = False
    keep_deliveries_on(deliveries.instance)
    assert not deliveries.queue.is_on


def test_run_goes_on_when_deliveries_cannot_be_switched_on() -> None:
    deliveries = Deliveries()

    def refused(_original: object) -> None:
        raise UNAVAILABLE

    queue = Intercepted(deliveries.queue, switch_on=refused)
    keep_deliveries_on(with_stores(deliveries.instance, deliveries=queue))
    assert deliveries.counts()["deliveries_switch_failed"] == 1
