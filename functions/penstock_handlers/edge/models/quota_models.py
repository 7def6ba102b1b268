"""The requests and answers about quotas, from which the OpenAPI document is made."""

from typing import Literal

from pydantic import Field
from typing_extensions import TypedDict

from penstock_core.limits import PRINCIPAL_LENGTH_MAX
from penstock_core.quotas.quota import DEFAULT
from penstock_handlers.edge.models.request_models import JsonRequest


class PutQuota(JsonRequest):
    """The limits of one principal or topic. The name `*` stands for all that have no quota of their own."""

    subject: Literal["principal", "topic"]
    name: str = Field(default=DEFAULT, max_length=PRINCIPAL_LENGTH_MAX)
    limits: dict[str, int | None]


class QuotaAnswer(TypedDict):
    """The limits of one principal or topic, or a default. There is no bound for a limit that is missing."""

    subject: str
    name: str
    limits: dict[str, int]


class QuotaList(TypedDict):
    """Quotas by subject and name, and the `after` of the next page, null behind the last."""

    quotas: list[QuotaAnswer]
    next_after: str | None
