"""Defects put into the claims by which a principal's counts hold, each of which the workload `claiming` must find."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock_core.errors import PenstockError
from penstock_core.quotas.claim import Claim, ClaimKind, counts_of, exceeded
from penstock_core.quotas.quota import Subject
from penstock_service.adapters.dynamodb.quotas import DynamoDbQuotaStore
from penstock_service.groups import claim_group as group_module
from penstock_service.groups import commit_offsets as commit_module
from penstock_service.instance.instance import Instance
from penstock_service.instance.quota_cache import QuotaCache
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.quotas import claim_resource as resource_module
from penstock_service.topics import create_topic as topic_module
from tests.simulation.mutants.mutant import Mutant, Patch


def _count_before_the_claim() -> Patch:
    def claim_resource(instance: Instance, window: UpdateWindow, principal: str, claim: Claim) -> None:
        quotas = instance.stores.quotas
        limits = instance.quota_cache.counts_of(principal)
        counts = counts_of(claim, is_new=True)
        if error := exceeded(limits, counts, [*quotas.claims(principal), claim]):
            raise error
        quotas.put_claim(principal, claim)

    return patch.object(topic_module, "claim_resource", claim_resource)


def _claims_of_the_gone_stay() -> Patch:
    return patch.object(resource_module, "_ripe", lambda *_: ())


def _young_claims_are_dropped() -> Patch:
    return patch.object(resource_module, "CLAIM_GRACE_MS", -1_000)


def _claims_share_a_name() -> Patch:
    """As it was: one claim of each kind and name, which creations of one name put over each other."""
    return patch.object(Claim, "place", property(lambda claim: (claim.kind, claim.name, "")))


def _deletion_drops_any_claim_of_the_name() -> Patch:
    def forget(self: DynamoDbQuotaStore, principal: str, kind: ClaimKind, name: str, _: str) -> None:
        for claim in self.claims(principal):
            if claim.place[:2] == (kind, name):
                original(self, principal, *claim.place)

    original = DynamoDbQuotaStore.forget_claim
    return patch.object(DynamoDbQuotaStore, "forget_claim", forget)


def _left_claim_of_a_group_admits() -> Patch:
    def claim_resource(instance: Instance, window: UpdateWindow, principal: str, claim: Claim) -> None:
        if claim.name not in {each.name for each in instance.stores.quotas.claims(principal)}:
            original(instance, window, principal, claim)

    original = resource_module.claim_resource
    return patch.object(group_module, "claim_resource", claim_resource)


def _unknown_quotas_are_none() -> Patch:
    def counts(self: QuotaCache, principal: str) -> Any:
        self.has_quotas(Subject.PRINCIPAL)
        if not self._is_known:
            return {}
        return original(self, principal)

    original = QuotaCache.counts_of
    return patch.object(QuotaCache, "counts_of", counts)


def _refused_claim_stays() -> Patch:
    def claim_resource(instance: Instance, window: UpdateWindow, principal: str, claim: Claim) -> None:
        try:
            original(instance, window, principal, claim)
        except PenstockError:
            instance.stores.quotas.put_claim(principal, replace(claim, claimed_at_ms=2 * claim.claimed_at_ms))
            raise

    original = resource_module.claim_resource
    return patch.object(topic_module, "claim_resource", claim_resource)


def _refusal_of_an_alteration_takes_the_claim_of_its_topic() -> Patch:
    def forget(self: DynamoDbQuotaStore, principal: str, claim: Claim) -> None:
        stored = {each.place: each for each in self.claims(principal)}.get(claim.place)
        if stored is not None and stored.partitions > claim.partitions:
            self.forget_claim(principal, *claim.place)
        else:
            original(self, principal, claim)

    original = DynamoDbQuotaStore.put_claim
    return patch.object(DynamoDbQuotaStore, "put_claim", forget)


def _deletion_takes_a_new_group_off_the_list() -> Patch:
    return patch.object(commit_module, "keep_listed", lambda *_: None)


CLAIM_MUTANTS = tuple(
    Mutant(f"claims: {name}", "claiming", patched)
    for name, patched in (
        ("counted before they are put", _count_before_the_claim),
        ("of the gone stay", _claims_of_the_gone_stay),
        ("young ones dropped", _young_claims_are_dropped),
        ("shared by a name", _claims_share_a_name),
        ("deletion drops any of the name", _deletion_drops_any_claim_of_the_name),
        ("left one admits its group", _left_claim_of_a_group_admits),
        ("unknown quotas are none", _unknown_quotas_are_none),
        ("refused one stays for ever", _refused_claim_stays),
        ("refused alteration loses its topic", _refusal_of_an_alteration_takes_the_claim_of_its_topic),
        ("deletion takes a new group off the list", _deletion_takes_a_new_group_off_the_list),
    )
)
