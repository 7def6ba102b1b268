"""A template's policies as IAM gets them, with names and ids as long as AWS makes them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ACCOUNT = "123456789012"
_NAMED_BY = {"AWS::Lambda::Function": "FunctionName", "AWS::Logs::LogGroup": "LogGroupName"}
_NAMED_BY |= {"AWS::IAM::Role": "RoleName", "AWS::Events::Rule": "Name"}
# What CloudFormation cuts the names at that it makes: `<stack>-<logical id>-<12 characters>`.
_NAME_LENGTHS = {"AWS::DynamoDB::Table": 255, "AWS::SQS::Queue": 80, "AWS::IAM::Role": 64, "AWS::Events::Rule": 64}
# The ARN of a resource by its type, without the partition. `{id}` is an id that AWS draws, at its length.
_ARNS = {
    "AWS::AppSync::Api": "appsync:{region}:{account}:apis/{id:.26}",
    "AWS::AppSync::ChannelNamespace": "appsync:{region}:{account}:apis/{id:.26}/channelNamespace/wake",
    "AWS::CloudWatch::Alarm": "cloudwatch:{region}:{account}:alarm:{name}",
    "AWS::DynamoDB::Table": "dynamodb:{region}:{account}:table/{name}",
    "AWS::EMRServerless::Application": "emr-serverless:{region}:{account}:/applications/{id:.16}",
    "AWS::Events::Rule": "events:{region}:{account}:rule/{name}",
    "AWS::IAM::Role": "iam::{account}:role/{name}",
    "AWS::Lambda::Function": "lambda:{region}:{account}:function:{name}",
    "AWS::Logs::LogGroup": "logs:{region}:{account}:log-group:{name}:*",
    "AWS::S3::Bucket": "s3:::{name}",
    "AWS::S3Express::DirectoryBucket": "s3express:{region}:{account}:bucket/{name}",
    "AWS::SQS::Queue": "sqs:{region}:{account}:{name}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A document that IAM gets. `holder` is the logical id of its role, or of the managed policy itself."""

    kind: str  # inline, managed, or trust
    holder: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A template in a region. A part that it cannot render raises KeyError or ValueError: it guesses nothing."""

    template: Mapping[str, Any]
    region: str
    partition: str = "aws"

    def policies(self) -> Iterator[Policy]:
        """Each policy that gives rights to a principal, and each that lets a principal take a role."""
        for name, resource in self.template["Resources"].items():
            facts = resource["Properties"]
            match resource["Type"]:
                case "AWS::IAM::ManagedPolicy":
                    yield Policy(kind="managed", holder=name, document=self.rendered(facts["PolicyDocument"]))
                case "AWS::IAM::Policy":
                    for role in facts["Roles"]:
                        document = self.rendered(facts["PolicyDocument"])
                        yield Policy(kind="inline", holder=role["Ref"], document=document)
                case "AWS::IAM::Role":
                    trust = self.rendered(facts["AssumeRolePolicyDocument"])
                    yield Policy(kind="trust", holder=name, document=trust)
                    for each in facts.get("Policies", []):
                        document = self.rendered(each["PolicyDocument"])
                        yield Policy(kind="inline", holder=name, document=document)

    def rendered(self, value: Any) -> Any:
        """The value with all references and functions of CloudFormation resolved."""
        match value:
            case list():
                return [self.rendered(each) for each in value]
            case {"Ref": str(target)}:
                return self._pseudo().get(target) or self._reference(target)
            case {"Fn::GetAtt": [str(target), str(attribute)]}:
                return self._attribute(target, attribute)
            case {"Fn::Join": [str(between), [*parts]]}:
                return between.join(self.rendered(part) for part in parts)
            case {"Fn::Select": [index, {"Fn::Split": [separator, whole]}]}:
                return self.rendered(whole).split(separator)[int(index)]
            case {"Fn::Sub": str(text)}:
                for name, known in self._pseudo().items():
                    text = text.replace(f"${{{name}}}", known)
                return text
            case dict():
                if unknown := [name for name in value if name.startswith("Fn::")]:
                    raise ValueError(f"cannot render {unknown}")
                return {name: self.rendered(each) for name, each in value.items()}
        return value

    def _pseudo(self) -> Mapping[str, str]:
        return {
            "AWS::Region": self.region,
            "AWS::AccountId": ACCOUNT,
            "AWS::Partition": self.partition,
            "AWS::StackId": f"arn:aws:cloudformation:{self.region}:{ACCOUNT}:stack/Penstock/{'0' * 36}",
            "AWS::URLSuffix": "amazonaws.com",
        }

    def _reference(self, target: str) -> str:
        resource = self.template["Resources"][target]
        match resource["Type"]:
            case "AWS::ApiGatewayV2::Api":
                return "a" * 10
            case "AWS::Lambda::Alias":
                facts = resource["Properties"]
                return f"{self._attribute(facts['FunctionName']['Ref'], 'Arn')}:{facts['Name']}"
            case "AWS::IAM::Role" | "AWS::S3::Bucket" | "AWS::DynamoDB::Table":
                return self._name(target)
        raise ValueError(f"cannot render a reference to {resource['Type']}")

    def _attribute(self, target: str, attribute: str) -> str:
        kind = self.template["Resources"][target]["Type"]
        if kind.startswith("Custom::"):  # the service draws it
            return "0" * 32
        if not attribute.endswith("Arn"):
            raise ValueError(f"cannot render {attribute} of {kind}")
        text = _ARNS[kind].format(region=self.region, account=ACCOUNT, name=self._name(target), id="a" * 32)
        behind = "/stream/2026-11-28T22:00:00.000" if attribute == "StreamArn" else ""
        return f"arn:{self.partition}:{text}{behind}"

    def _name(self, target: str) -> str:
        resource = self.template["Resources"][target]
        kind, facts = resource["Type"], resource["Properties"]
        given = facts.get(_NAMED_BY.get(kind, ""))
        if given is not None:
            return str(self.rendered(given))
        if kind == "AWS::S3Express::DirectoryBucket":
            return f"{'b' * 45}--{facts['LocationName']}--x-s3"
        made = f"Penstock-{target}-{'X' * 12}"[: _NAME_LENGTHS.get(kind, 63)]
        return made.lower() if kind == "AWS::S3::Bucket" else made
