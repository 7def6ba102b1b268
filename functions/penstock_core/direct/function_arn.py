"""ARNs of the functions of a stage, as clients write them and as Lambda tells a function its own.

| ARN                                                                              | names                       |
|----------------------------------------------------------------------------------|-----------------------------|
| `arn:aws:lambda:us-east-1:111122223333:function:penstock`                         | the stage: proofs name it   |
| `arn:aws:lambda:us-east-1:111122223333:function:penstock-produce:direct-produce`  | an alias of one function    |
"""

import re
from dataclasses import dataclass

LAMBDA = "lambda"  # the transport that invokes functions, as clients and `GET /v1/metadata` name it
WAY_HEADER, WAY_REFUSED = "Penstock-Way", "refused"  # of an answer: the request was not begun, and HTTP may carry it
_STAGE = re.compile(
    r"arn:(aws(?:-[a-z]+)*):lambda:([a-z]{2}(?:-[a-z]+)+-\d):(\d{12})"
    r":function:([a-z][a-z0-9]*(?:-[a-z0-9]+)*)",
    re.ASCII,
)
_DOMAINS = {"aws-cn": "amazonaws.com.cn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionsPlace:
    """A stage whose functions clients invoke: account, region and the name that begins each function's."""

    partition: str
    region: str
    account: str
    stage: str

    @property
    def arn(self) -> str:
        """The text by which clients and proofs name the stage. No stage of another account or region has it."""
        return f"arn:{self.partition}:lambda:{self.region}:{self.account}:function:{self.stage}"

    def alias_arn(self, function: str, alias: str) -> str:
        """The ARN of an alias of a function. `function` is the name of its module."""
        return f"{self.arn}-{function.replace('_', '-')}:{alias}"

    def url_of(self, service: str) -> str:
        """The regional endpoint of a service of AWS."""
        return f"https://{service}.{self.region}.{_DOMAINS.get(self.partition, 'amazonaws.com')}"


def parse_functions_place(text: str) -> FunctionsPlace:
    """The place that such an ARN names. Raises ValueError with the text and the form."""
    found = _STAGE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r:.200} is no ARN of a stage: give arn:aws:lambda:REGION:ACCOUNT:function:STAGE")
    partition, region, account, stage = found.groups()
    return FunctionsPlace(partition=partition, region=region, account=account, stage=stage)


def qualifier_of(arn: str) -> str:
    """The alias or version in a function's ARN, "" for an ARN without one."""
    parts = arn.split(":")
    return parts[7] if len(parts) == 8 else ""
